//! QEMU: Debian's for nodes in which it runs guests, to compare with; and for nodes themselves one that is
//! built of Debian's source package, with mends of what goes wrong with nested guests, or is slow.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::recipe_file;
use crate::{artifacts, cache, process, tools};

const PATCHES: [&str; 4] = [
    "node/qemu/cr8.patch",
    "node/qemu/injection.patch",
    "node/qemu/nested-tlb.patch",
    "node/qemu/jump-cache.patch",
];
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
/// When it cannot be had.
pub fn stock_files() -> anyhow::Result<Vec<String>> {
    tools::ensure(tools::NODE)?;
    let mut files = process::with_libraries(STOCK)?;
    files.extend(FIRMWARE.map(str::to_owned));
    Ok(files)
}

/// The mended program, built when the cache has none of this recipe: about five minutes of two processors. One in
/// the cache stays, whatever newer source there is.
///
/// # Errors
/// When the source cannot be had or the build fails.
pub fn mended() -> anyhow::Result<PathBuf> {
    let mut recipe = vec![recipe_file(SCRIPT)?];
    for patch in PATCHES {
        recipe.push(recipe_file(patch)?);
    }
    let recipe: Vec<&[u8]> = recipe.iter().map(Vec::as_slice).collect();
    let key = cache::key(&recipe);
    let directory = cache::directory("node-qemu", &key, |partial| {
        tools::ensure(tools::QEMU_BUILD)?;
        eprintln!("building QEMU for nodes; about five minutes");
        download(partial)?;
        let recipes = artifacts::workspace()?.join("guest-images");
        process::output(
            Command::new(recipes.join(SCRIPT))
                .arg(partial)
                .args(PATCHES.map(|patch| recipes.join(patch))),
        )
        .map(drop)
    })?;
    Ok(directory.join(PROGRAM))
}

/// Debian's source package, from where this machine has its packages. Its own list of sources seldom has
/// source packages and stays as it is: apt has lists of its own in `into`, checks their signature, and the
/// package by them.
fn download(into: &Path) -> anyhow::Result<()> {
    let (lists, sources) = (into.join("lists"), into.join("sources"));
    // What apt makes by itself only in its own place.
    for directory in ["partial", "cache/archives/partial"] {
        fs::create_dir_all(lists.join(directory))?;
    }
    fs::create_dir(&sources)?;
    write_sources(&sources)?;
    let own = [
        "Dir::Etc::SourceList=/dev/null".to_owned(),
        format!("Dir::Etc::SourceParts={}", sources.display()),
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
    fs::remove_dir_all(sources)?;
    Ok(fs::remove_dir_all(lists)?)
}

/// This machine's sources of packages, as sources of source packages.
fn write_sources(into: &Path) -> anyhow::Result<()> {
    if let Ok(text) = fs::read_to_string("/etc/apt/sources.list") {
        fs::write(into.join("main.list"), of_sources(&text))?;
    }
    for entry in fs::read_dir("/etc/apt/sources.list.d")? {
        let path = entry?.path();
        let is_one = path
            .extension()
            .is_some_and(|ending| ending == "list" || ending == "sources");
        if let (true, Some(name)) = (is_one, path.file_name()) {
            fs::write(into.join(name), of_sources(&fs::read_to_string(&path)?))?;
        }
    }
    Ok(())
}

/// Either format of sources.list(5), with source packages in place of others.
fn of_sources(text: &str) -> String {
    let line = |line: &str| {
        let types = line
            .strip_prefix("Types:")
            .map(|_| "Types: deb-src".to_owned());
        let deb = || {
            line.strip_prefix("deb ")
                .map(|rest| format!("deb-src {rest}"))
        };
        types.or_else(deb).unwrap_or_else(|| line.to_owned()) + "\n"
    };
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_of_sources_become_those_of_source_packages() {
        let list = "# deb mirror\ndeb [arch=amd64] http://mirror/debian bookworm main\n";
        assert_eq!(
            of_sources(list),
            "# deb mirror\ndeb-src [arch=amd64] http://mirror/debian bookworm main\n"
        );
        let sources = "Types: deb\nURIs: http://mirror/debian\nSuites: bookworm\n";
        assert_eq!(
            of_sources(sources),
            "Types: deb-src\nURIs: http://mirror/debian\nSuites: bookworm\n"
        );
    }
}
