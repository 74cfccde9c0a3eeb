//! Debian's stock kernels: the package, its modules, and the ELF image inside its bzImage.

mod unpack;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::{cache, process, tools};

/// Words for the command line of a kernel that runs in an emulated node: periodic ticks. Such a node loses a timer
/// interrupt now and then, which a kernel with ticks on demand never asks for again. `grub.cfg` of `guest-images/cloud` and of
/// `guest-images/firmware` have them too.
pub const PERIODIC_TICKS: &str = "lapic=notscdeadline nohz=off highres=off";

/// One of Debian's kernels.
struct Source {
    /// The meta package that names the newest.
    meta_package: &'static str,
    /// In the cache.
    name: &'static str,
    /// Directories of modules to be kept, and whole packages; all when it is `None`.
    kept: Option<&'static [&'static str]>,
}

const CLOUD: Source = Source {
    meta_package: "linux-image-cloud-amd64",
    name: "kernel",
    kept: None,
};

const GENERIC: Source = Source {
    meta_package: "linux-image-amd64",
    name: "kernel-generic",
    // Of some 400 MB, what machines of ours have devices for.
    kept: Some(&[
        "drivers/acpi",
        "drivers/block",
        "drivers/char",
        "drivers/input",
        "drivers/misc",
        "drivers/virtio",
        "drivers/watchdog",
        "net/core",
        "net/vmw_vsock",
    ]),
};

/// A stock kernel, unpacked.
#[derive(Debug, Clone)]
pub struct StockKernel {
    /// The directory of everything below.
    pub directory: PathBuf,
    /// `uname -r`, for example `6.1.0-44-cloud-amd64`.
    pub release: String,
}

impl StockKernel {
    /// The bzImage as Debian ships it.
    #[must_use]
    pub fn bzimage(&self) -> PathBuf {
        self.directory.join("vmlinuz")
    }

    /// The ELF image that the bzImage holds: booted by PVH it saves the emulated decompression.
    #[must_use]
    pub fn vmlinux(&self) -> PathBuf {
        self.directory.join("vmlinux")
    }

    /// The directory with `kernel/` and `modules.*`.
    #[must_use]
    pub fn modules(&self) -> PathBuf {
        self.directory.join("modules")
    }

    /// The package's file, for installing the kernel into a root file system.
    #[must_use]
    pub fn package(&self) -> PathBuf {
        self.directory.join("package.deb")
    }
}

/// The stock cloud kernel of the cache, downloaded through apt when there is none. `cargo xtask images
/// --refresh` asks apt for a newer one.
///
/// # Errors
/// When it is not cached and apt cannot give it.
pub fn stock() -> anyhow::Result<StockKernel> {
    cached(&CLOUD)
}

/// As [`stock`], but the generic kernel, which has drivers for watchdogs and VMGenID; with few modules
/// and without its package.
///
/// # Errors
/// As [`stock`].
pub fn generic() -> anyhow::Result<StockKernel> {
    cached(&GENERIC)
}

fn cached(source: &Source) -> anyhow::Result<StockKernel> {
    let current = current_file(source);
    if let Ok(name) = fs::read_to_string(&current) {
        let directory = cache::root().join("images").join(name.trim());
        if let Ok(release) = fs::read_to_string(directory.join("release")) {
            return Ok(StockKernel { directory, release });
        }
    }
    newest(source)
}

fn current_file(source: &Source) -> PathBuf {
    let name = format!("{}-current", source.name);
    cache::root().join("images").join(name)
}

/// Takes the newest stock kernels that apt knows, and gives the cloud kernel.
///
/// # Errors
/// When apt knows none or the download fails.
pub fn refresh() -> anyhow::Result<StockKernel> {
    newest(&GENERIC)?;
    newest(&CLOUD)
}

fn newest(source: &Source) -> anyhow::Result<StockKernel> {
    tools::ensure(tools::IMAGES)?;
    let package = newest_package(source).or_else(|_| {
        tools::update_lists()?;
        newest_package(source)
    })?;
    let version =
        process::output(Command::new("apt-cache").args(["show", "--no-all-versions", &package]))?;
    let version = field(&version, "Version")
        .context("apt-cache show names no version")?
        .to_owned();
    let directory = cache::directory(
        source.name,
        &cache::key(&[package.as_bytes(), version.as_bytes()]),
        |partial| {
            eprintln!("downloading {package} {version}");
            fetch(&package, partial)?;
            source.kept.map_or(Ok(()), |kept| prune(partial, kept))
        },
    )?;
    let name = directory
        .file_name()
        .context("a cache directory without a name")?;
    fs::write(current_file(source), name.as_encoded_bytes())?;
    let release = fs::read_to_string(directory.join("release"))?;
    Ok(StockKernel { directory, release })
}

fn newest_package(source: &Source) -> anyhow::Result<String> {
    let shown = process::output(Command::new("apt-cache").args([
        "show",
        "--no-all-versions",
        source.meta_package,
    ]))?;
    let depends = field(&shown, "Depends").context("the meta package depends on nothing")?;
    let first = depends.split([',', ' ']).next().unwrap_or_default();
    anyhow::ensure!(
        first.starts_with("linux-image-"),
        "{} depends on {depends}",
        source.meta_package
    );
    Ok(first.to_owned())
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// Downloads a package through apt; where its file is.
pub(super) fn download(package: &str, into: &Path) -> anyhow::Result<PathBuf> {
    let get = || {
        process::output(
            Command::new("apt-get")
                .args(["download", package])
                .current_dir(into),
        )
    };
    if get().is_err() {
        tools::update_lists()?;
        get()?;
    }
    fs::read_dir(into)?
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .context("apt-get download left no package")
}

fn fetch(package: &str, into: &Path) -> anyhow::Result<()> {
    let deb = into.join("package.deb");
    fs::rename(download(package, into)?, &deb)?;
    let tree = into.join("tree");
    process::output(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&tree))?;
    let release = package.trim_start_matches("linux-image-");
    fs::rename(
        tree.join(format!("boot/vmlinuz-{release}")),
        into.join("vmlinuz"),
    )?;
    fs::rename(
        tree.join(format!("lib/modules/{release}")),
        into.join("modules"),
    )?;
    fs::remove_dir_all(&tree)?;
    let elf = unpack::unpack(&fs::read(into.join("vmlinuz"))?)?;
    fs::write(into.join("vmlinux"), elf)?;
    fs::write(into.join("release"), release)?;
    Ok(())
}

/// Drops what takes most of the room: the package, and modules outside of the directories `kept`.
fn prune(kernel: &Path, kept: &[&str]) -> anyhow::Result<()> {
    fs::remove_file(kernel.join("package.deb"))?;
    let (modules, all) = (kernel.join("modules/kernel"), kernel.join("all-modules"));
    fs::rename(&modules, &all)?;
    for directory in kept {
        let target = modules.join(directory);
        fs::create_dir_all(target.parent().context("a directory without a parent")?)?;
        fs::rename(all.join(directory), target)?;
    }
    // Modules of no particular kind of NIC: net_failover, and what it needs.
    let net = modules.join("drivers/net");
    fs::create_dir_all(&net)?;
    for entry in fs::read_dir(all.join("drivers/net"))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::rename(entry.path(), net.join(entry.file_name()))?;
        }
    }
    fs::remove_dir_all(&all)?;
    Ok(())
}
