//! QEMU: Debian's for nodes in which it runs guests, to compare with; and for nodes whose guests write CR8, as
//! OVMF does, one that is built of Debian's source package with one change.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::recipe_file;
use crate::{artifacts, cache, process, tools};

const SOURCES: &str = "node/qemu/debian.sources";
const PATCH: &str = "node/qemu/cr8.patch";
const SCRIPT: &str = "node/qemu/build-qemu";
/// The script leaves it.
const PROGRAM: &str = "qemu-system-x86_64";

/// Debian's program.
pub const STOCK: &str = "/usr/bin/qemu-system-x86_64";
/// What its machines load.
const FIRMWARE: [&str; 5] = [
    "/usr/share/qemu/bios-microvm.bin",
    "/usr/share/seabios/bios-256k.bin",
    "/usr/share/qemu/linuxboot_dma.bin",
    "/usr/share/qemu/pvh.bin",
    "/usr/share/qemu/kvmvapic.bin",
];

/// All files that [`STOCK`] needs to run, where they are on this machine and are to be in a node.
///
/// # Errors
/// When it can not be had.
pub fn stock_files() -> anyhow::Result<Vec<String>> {
    tools::ensure(tools::NODE)?;
    let libraries = process::output(Command::new("ldd").arg(STOCK))?;
    let libraries = libraries
        .split_whitespace()
        .filter(|word| word.starts_with('/'));
    let files = libraries.chain(FIRMWARE).chain([STOCK]);
    Ok(files.map(str::to_owned).collect())
}

/// The mended program, built when the cache has none of this recipe: about five minutes of two processors. One in
/// the cache stays, whatever newer source there is.
///
/// # Errors
/// When the source can not be had or the build fails.
pub fn mended() -> anyhow::Result<PathBuf> {
    let key = cache::key(&[
        &recipe_file(SOURCES)?,
        &recipe_file(PATCH)?,
        &recipe_file(SCRIPT)?,
    ]);
    let directory = cache::directory("node-qemu", &key, |partial| {
        tools::ensure(tools::QEMU_BUILD)?;
        eprintln!("building QEMU for nodes with OVMF; about five minutes");
        download(partial)?;
        let recipes = artifacts::workspace()?.join("guest-images");
        process::output(
            Command::new(recipes.join(SCRIPT))
                .arg(partial)
                .arg(recipes.join(PATCH)),
        )
        .map(drop)
    })?;
    Ok(directory.join(PROGRAM))
}

/// Debian's source package. This machine's own list of sources has none and stays as it is: apt has lists
/// of its own in `into`, checks their signature, and the package by them.
fn download(into: &Path) -> anyhow::Result<()> {
    let lists = into.join("lists");
    let own = [
        format!(
            "Dir::Etc::SourceList={}",
            artifacts::workspace()?
                .join("guest-images")
                .join(SOURCES)
                .display()
        ),
        "Dir::Etc::SourceParts=/dev/null".to_owned(),
        format!("Dir::State::Lists={}", lists.display()),
        format!("Dir::Cache={}", lists.join("cache").display()),
        // Its own user may not look into the cache's directories.
        "APT::Sandbox::User=root".to_owned(),
        "Acquire::AllowInsecureRepositories=false".to_owned(),
    ];
    let apt = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        command.current_dir(into);
        for option in &own {
            command.args(["-o", option]);
        }
        process::output(command.args(words)).map(drop)
    };
    apt(&["update"])?;
    apt(&["source", "--download-only", "qemu"])?;
    Ok(fs::remove_dir_all(lists)?)
}
