//! Debian's stock cloud kernel: the package, its modules, and the ELF image inside its bzImage.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::{cache, process, tools};

/// The meta package that names the newest kernel.
const META_PACKAGE: &str = "linux-image-cloud-amd64";

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

/// The stock kernel of the cache, downloaded through apt when there is none. `cargo xtask images
/// --refresh` asks apt for a newer one.
///
/// # Errors
/// When it is not cached and apt can not give it.
pub fn stock() -> anyhow::Result<StockKernel> {
    let current = current_file();
    if let Ok(name) = fs::read_to_string(&current) {
        let directory = cache::root().join("images").join(name.trim());
        if let Ok(release) = fs::read_to_string(directory.join("release")) {
            return Ok(StockKernel { directory, release });
        }
    }
    refresh()
}

fn current_file() -> PathBuf {
    cache::root().join("images/kernel-current")
}

/// Takes the newest stock kernel that apt knows.
///
/// # Errors
/// When apt knows none or the download fails.
pub fn refresh() -> anyhow::Result<StockKernel> {
    tools::ensure(tools::IMAGES)?;
    let package = newest_package().or_else(|_| {
        tools::update_lists()?;
        newest_package()
    })?;
    let version =
        process::output(Command::new("apt-cache").args(["show", "--no-all-versions", &package]))?;
    let version = field(&version, "Version")
        .context("apt-cache show names no version")?
        .to_owned();
    let directory = cache::directory(
        "kernel",
        &cache::key(&[package.as_bytes(), version.as_bytes()]),
        |partial| {
            eprintln!("downloading {package} {version}");
            fetch(&package, partial)
        },
    )?;
    let name = directory
        .file_name()
        .context("a cache directory without a name")?;
    fs::write(current_file(), name.as_encoded_bytes())?;
    let release = fs::read_to_string(directory.join("release"))?;
    Ok(StockKernel { directory, release })
}

fn newest_package() -> anyhow::Result<String> {
    let shown = process::output(Command::new("apt-cache").args([
        "show",
        "--no-all-versions",
        META_PACKAGE,
    ]))?;
    let depends = field(&shown, "Depends").context("the meta package depends on nothing")?;
    let first = depends.split([',', ' ']).next().unwrap_or_default();
    anyhow::ensure!(
        first.starts_with("linux-image-"),
        "{META_PACKAGE} depends on {depends}"
    );
    Ok(first.to_owned())
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

fn fetch(package: &str, into: &Path) -> anyhow::Result<()> {
    let download = || {
        process::output(
            Command::new("apt-get")
                .args(["download", package])
                .current_dir(into),
        )
    };
    if download().is_err() {
        tools::update_lists()?;
        download()?;
    }
    let downloaded = fs::read_dir(into)?
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .context("apt-get download left no package")?;
    let deb = into.join("package.deb");
    fs::rename(downloaded, &deb)?;
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
    let elf = unpack(&fs::read(into.join("vmlinuz"))?)?;
    fs::write(into.join("vmlinux"), elf)?;
    fs::write(into.join("release"), release)?;
    Ok(())
}

/// The ELF image inside an LZ4-compressed bzImage (Documentation/arch/x86/boot.rst: `setup_sects`
/// at 0x1f1, `payload_offset` at 0x248, `payload_length` at 0x24c).
fn unpack(bzimage: &[u8]) -> anyhow::Result<Vec<u8>> {
    let word = |offset: usize| -> anyhow::Result<usize> {
        let bytes = bzimage
            .get(offset..offset + 4)
            .context("a bzImage shorter than its header")?;
        Ok(u32::from_le_bytes(bytes.try_into()?) as usize)
    };
    let setup_sectors = match bzimage.get(0x1f1) {
        Some(0) => 4,
        Some(count) => usize::from(*count),
        None => anyhow::bail!("a bzImage shorter than its header"),
    };
    let start = (setup_sectors + 1) * 512 + word(0x248)?;
    let payload = bzimage
        .get(start..start + word(0x24c)?)
        .context("a payload outside the bzImage")?;
    unpack_lz4_legacy(payload)
}

/// LZ4's legacy frame: a magic number, then blocks of at most 8 MiB, each after its length. The
/// kernel's build appends the unpacked length, which looks like one more block header.
fn unpack_lz4_legacy(payload: &[u8]) -> anyhow::Result<Vec<u8>> {
    const BLOCK_BYTES: usize = 8 << 20;
    let mut rest = payload
        .strip_prefix(&0x184c_2102_u32.to_le_bytes())
        .context("the kernel is not LZ4-compressed")?;
    let mut elf = Vec::new();
    while rest.len() > 4 {
        let (length, after) = rest.split_at(4);
        let length = u32::from_le_bytes(length.try_into()?) as usize;
        let block = after
            .get(..length)
            .context("an LZ4 block outside the payload")?;
        elf.extend(lz4_flex::block::decompress(block, BLOCK_BYTES).context("a broken LZ4 block")?);
        rest = &after[length..];
    }
    anyhow::ensure!(
        elf.starts_with(b"\x7fELF"),
        "the kernel's payload is no ELF image"
    );
    Ok(elf)
}
