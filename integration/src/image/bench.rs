//! What `cargo xtask bench vmm` boots with every hypervisor: a small kernel, and an initramfs for starts and one
//! for work.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::cpio::Archive;
use super::recipe_file;
use crate::{artifacts, cache, process, tools};

/// The package that holds the source of the kernel; it also names the tarball in it.
const SOURCE_PACKAGE: &str = "linux-source-6.12";
const CONFIG: &str = "bench/kernel.config";
const SCRIPT: &str = "bench/build-kernel";

/// The ELF image of the kernel, built when the cache has none of its configuration: about five minutes
/// of two processors. An image in the cache stays, whatever newer source there is.
///
/// # Errors
/// When the source cannot be had or the build fails.
pub fn kernel() -> anyhow::Result<PathBuf> {
    let key = cache::key(&[
        SOURCE_PACKAGE.as_bytes(),
        &recipe_file(CONFIG)?,
        &recipe_file(SCRIPT)?,
    ]);
    let directory = cache::directory("bench-kernel", &key, |partial| {
        tools::ensure(tools::KERNEL_BUILD)?;
        eprintln!("building the benchmark kernel; about five minutes");
        let tarball = download(partial)?;
        let recipes = artifacts::workspace()?.join("guest-images");
        process::output(
            Command::new(recipes.join(SCRIPT))
                .arg(&tarball)
                .arg(recipes.join(CONFIG))
                .arg(partial),
        )?;
        Ok(fs::remove_file(tarball)?)
    })?;
    Ok(directory.join("vmlinux"))
}

/// The source as Debian packs it.
fn download(into: &Path) -> anyhow::Result<PathBuf> {
    let package = super::kernel::download(SOURCE_PACKAGE, into)?;
    let tree = into.join("package");
    process::output(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&tree))?;
    let tarball = into.join("source.tar.xz");
    let packed = tree.join(format!("usr/src/{SOURCE_PACKAGE}.tar.xz"));
    fs::rename(&packed, &tarball).with_context(|| packed.display().to_string())?;
    fs::remove_file(package)?;
    fs::remove_dir_all(tree)?;
    Ok(tarball)
}

/// An uncompressed initramfs whose `/init` says that it runs and waits: for starts.
///
/// # Errors
/// When it cannot be assembled.
pub fn start_initramfs() -> anyhow::Result<Vec<u8>> {
    let file = tempfile::NamedTempFile::new()?;
    let source = artifacts::workspace()?.join("guest-images/bench/init.S");
    process::output(
        Command::new("cc")
            .args(["-nostdlib", "-static", "-no-pie", "-s"])
            .args(["-Wl,-z,noseparate-code", "-Wl,--build-id=none", "-o"])
            .arg(file.path())
            .arg(source),
    )?;
    initramfs_of(&fs::read(file)?)?.finish()
}

/// An uncompressed initramfs of `bench-guest` as `/init`, and of busybox for its `ip`: for work.
///
/// # Errors
/// When the program was not built yet.
pub fn work_initramfs() -> anyhow::Result<Vec<u8>> {
    let mut archive = initramfs_of(&work_program()?)?;
    tools::ensure(tools::IMAGES)?;
    archive.file("bin/busybox", 0o755, &fs::read("/bin/busybox")?)?;
    archive.finish()
}

/// The program `bench-guest`.
///
/// # Errors
/// When it was not built yet.
pub fn work_program() -> anyhow::Result<Vec<u8>> {
    stripped("bench-guest")
}

fn initramfs_of(init: &[u8]) -> anyhow::Result<Archive> {
    let mut archive = Archive::default();
    for directory in ["bin", "dev", "proc", "sys"] {
        archive.directory(directory)?;
    }
    // The kernel opens it for /init before anything is mounted.
    archive.character_device("dev/console", 5, 1)?;
    archive.file("init", 0o755, init)?;
    Ok(archive)
}

/// A program without what only debuggers read.
fn stripped(name: &str) -> anyhow::Result<Vec<u8>> {
    let file = tempfile::NamedTempFile::new()?;
    process::output(
        Command::new("objcopy")
            .arg("--strip-all")
            .arg(artifacts::program(name)?)
            .arg(file.path()),
    )?;
    Ok(fs::read(file.path())?)
}

#[cfg(test)]
mod tests {
    use super::start_initramfs;
    use crate::vmm_bench::INIT_LINE;

    #[test]
    fn the_init_of_starts_is_small_and_says_the_line_that_is_waited_for() {
        let archive = start_initramfs().expect("assembled");
        assert!(archive.len() < 16 << 10, "{} bytes", archive.len());
        let line = format!("{INIT_LINE}\n");
        let mut windows = archive.windows(line.len());
        assert!(windows.any(|window| window == line.as_bytes()));
    }
}
