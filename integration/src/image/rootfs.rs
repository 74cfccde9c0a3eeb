//! The root file system of systemd nodes: Debian by mmdebstrap, as ext4.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::kernel::StockKernel;
use super::{ext4, recipe_file};
use crate::{cache, process, tools};

const SUITE: &str = "bookworm";
const PACKAGES: &str = "systemd,systemd-sysv,udev,dbus,nftables,iproute2,kmod,procps";
/// Virtual size; the file is sparse.
const MIB: u64 = 4096;

/// The ext4 image, never written to: each node puts its own layer on top.
///
/// # Errors
/// When mmdebstrap fails; it needs the network the first time.
pub fn systemd(kernel: &StockKernel) -> anyhow::Result<PathBuf> {
    let unit = recipe_file("node/systemd/node-agent.service")?;
    let setup = recipe_file("node/systemd/setup")?;
    let key = cache::key(&[
        SUITE.as_bytes(),
        PACKAGES.as_bytes(),
        &unit,
        &setup,
        kernel.directory.as_os_str().as_encoded_bytes(),
        b"layout 1",
    ]);
    let directory = cache::directory("node-systemd", &key, |partial| {
        tools::ensure(tools::IMAGES)?;
        eprintln!("making the systemd node's root file system by mmdebstrap; about a minute");
        build(partial, kernel)
    })?;
    Ok(directory.join("root.ext4"))
}

fn build(partial: &Path, kernel: &StockKernel) -> anyhow::Result<()> {
    let tree = partial.join("tree");
    let recipe = crate::artifacts::workspace()?.join("guest-images/node/systemd");
    process::output(
        Command::new("mmdebstrap")
            .args(["--variant=minbase", "--mode=auto", "--quiet"])
            .arg(format!("--include={PACKAGES}"))
            .args([
                "--dpkgopt=path-exclude=/usr/share/doc/*",
                "--dpkgopt=path-exclude=/usr/share/locale/*",
            ])
            .args([
                "--dpkgopt=path-exclude=/usr/share/man/*",
                "--aptopt=Acquire::Languages none",
            ])
            .arg(SUITE)
            .arg(&tree),
    )?;
    let modules = tree.join("lib/modules").join(&kernel.release);
    fs::create_dir_all(tree.join("lib/modules"))?;
    process::output(
        Command::new("cp")
            .arg("-a")
            .arg(kernel.modules())
            .arg(&modules),
    )?;
    fs::copy(
        recipe.join("node-agent.service"),
        tree.join("etc/systemd/system/node-agent.service"),
    )?;
    process::output(
        Command::new("sh")
            .arg(recipe.join("setup"))
            .arg(&tree)
            .arg(&kernel.release),
    )?;
    ext4::make(&partial.join("root.ext4"), MIB, Some(&tree))?;
    fs::remove_dir_all(&tree)?;
    Ok(())
}
