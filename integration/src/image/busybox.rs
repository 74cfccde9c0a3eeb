//! Initramfs images of busybox: one for guests, one for nodes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::cpio::Archive;
use super::kernel::{self, StockKernel};
use super::modules::Modules;
use super::recipe_file;
use crate::{cache, process, tools};

const BUSYBOX: &str = "/bin/busybox";
/// Begins a line of a module that is carried and not loaded.
const LATER: &str = "later ";

/// What a guest's kernel is booted with.
#[derive(Debug, Clone)]
pub struct GuestImage {
    /// A directory that a manifest names as `dir:PATH`; it holds [`Self::KERNEL`] and
    /// [`Self::INITRD`].
    pub directory: PathBuf,
}

impl GuestImage {
    /// Path of the bzImage inside the image, for `kernelPath`.
    pub const KERNEL: &'static str = "/boot/vmlinuz";
    /// Path of the initramfs inside the image, for `initrdPath`.
    pub const INITRD: &'static str = "/boot/initrd";
    /// What the guest prints once it gives a prompt.
    pub const PROMPT: &'static str = "guest# ";

    /// The kernel's file.
    #[must_use]
    pub fn kernel(&self) -> PathBuf {
        self.directory.join(&Self::KERNEL[1..])
    }

    /// The initramfs's file.
    #[must_use]
    pub fn initrd(&self) -> PathBuf {
        self.directory.join(&Self::INITRD[1..])
    }
}

/// The busybox guest on the stock kernel. What its `/init` does is in `guest-images/README.md`.
///
/// # Errors
/// When kernel or busybox cannot be had.
pub fn guest() -> anyhow::Result<GuestImage> {
    let kernel = kernel::stock()?;
    let recipe = Recipe::read("busybox", &["init", "end"], &kernel)?;
    let directory = cache::directory("guest-busybox", &recipe.key(), |partial| {
        fs::create_dir(partial.join("boot"))?;
        fs::write(
            partial.join(&GuestImage::INITRD[1..]),
            recipe.packed_initramfs()?,
        )?;
        fs::copy(kernel.bzimage(), partial.join(&GuestImage::KERNEL[1..]))?;
        Ok(())
    })?;
    Ok(GuestImage { directory })
}

/// As [`guest`] on the generic kernel, whose ELF image is in the place of the bzImage. It carries drivers
/// for everything that watches over a guest's life; those of panic devices are not loaded.
///
/// # Errors
/// When kernel or busybox cannot be had.
pub fn generic_guest() -> anyhow::Result<GuestImage> {
    let kernel = kernel::generic()?;
    let scripts = &["init", "end"];
    let recipe = Recipe::with_modules("busybox", "generic-modules", scripts, &kernel)?;
    let directory = cache::directory("guest-generic", &recipe.key(), |partial| {
        fs::create_dir(partial.join("boot"))?;
        fs::write(
            partial.join(&GuestImage::INITRD[1..]),
            recipe.packed_initramfs()?,
        )?;
        fs::copy(kernel.vmlinux(), partial.join(&GuestImage::KERNEL[1..]))?;
        Ok(())
    })?;
    Ok(GuestImage { directory })
}

/// The initramfs of nodes of both flavours: busybox, or a switch to the root file system on disk.
///
/// # Errors
/// When kernel or busybox cannot be had.
pub fn node(kernel: &StockKernel) -> anyhow::Result<PathBuf> {
    let recipe = Recipe::read("node", &["init"], kernel)?;
    let directory = cache::directory("node-initramfs", &recipe.key(), |partial| {
        fs::write(partial.join("initrd"), recipe.initramfs()?)?;
        Ok(())
    })?;
    Ok(directory.join("initrd"))
}

/// The initramfs of the small cloud image, packed: drivers, and a switch to the root file system on its disk.
///
/// # Errors
/// When kernel or busybox cannot be had.
pub(super) fn cloud(kernel: &StockKernel) -> anyhow::Result<PathBuf> {
    let recipe = Recipe::read("cloud", &["init"], kernel)?;
    let directory = cache::directory("cloud-initramfs", &recipe.key(), |partial| {
        fs::write(partial.join("initrd"), recipe.packed_initramfs()?)?;
        Ok(())
    })?;
    Ok(directory.join("initrd"))
}

/// `guest-images/NAME`: scripts and a list of modules, with the kernel and busybox they go with.
struct Recipe {
    /// What goes to the root, by name; `init` is one.
    scripts: Vec<(&'static str, Vec<u8>)>,
    wanted: String,
    busybox: Vec<u8>,
    kernel: StockKernel,
}

impl Recipe {
    fn read(name: &str, scripts: &[&'static str], kernel: &StockKernel) -> anyhow::Result<Self> {
        Self::with_modules(name, "modules", scripts, kernel)
    }

    fn with_modules(
        name: &str,
        list: &str,
        scripts: &[&'static str],
        kernel: &StockKernel,
    ) -> anyhow::Result<Self> {
        tools::ensure(tools::IMAGES)?;
        let script = |script| anyhow::Ok((script, recipe_file(&format!("{name}/{script}"))?));
        Ok(Self {
            scripts: scripts
                .iter()
                .copied()
                .map(script)
                .collect::<Result<_, _>>()?,
            wanted: String::from_utf8(recipe_file(&format!("{name}/{list}"))?)?,
            busybox: fs::read(BUSYBOX)?,
            kernel: kernel.clone(),
        })
    }

    fn key(&self) -> String {
        let kernel = self.kernel.directory.as_os_str().as_encoded_bytes();
        let mut parts = vec![self.wanted.as_bytes(), &self.busybox, kernel, b"layout 3"];
        for (name, content) in &self.scripts {
            parts.extend([name.as_bytes(), content]);
        }
        cache::key(&parts)
    }

    /// Packed, it fits beside a bzImage that unpacks itself in 64 MiB. Of the formats that kernels know, zstd takes
    /// a guest the least: LZ4's window alone has 8 MiB.
    fn packed_initramfs(&self) -> anyhow::Result<Vec<u8>> {
        Ok(zstd::encode_all(self.initramfs()?.as_slice(), 0)?)
    }

    fn initramfs(&self) -> anyhow::Result<Vec<u8>> {
        let mut archive = Archive::default();
        for directory in [
            "bin",
            "dev",
            "etc",
            "lib",
            "lib/modules",
            "mnt",
            "proc",
            "root",
            "run",
            "sys",
            "tmp",
            "usr",
        ] {
            archive.directory(directory)?;
        }
        for directory in [
            "usr/bin",
            "usr/local",
            "usr/local/bin",
            "opt",
            "opt/payload",
            "var",
            "var/lib",
            "newroot",
        ] {
            archive.directory(directory)?;
        }
        // The kernel opens it for /init before anything is mounted.
        archive.character_device("dev/console", 5, 1)?;
        archive.symlink("sbin", "bin")?;
        archive.file("bin/busybox", 0o755, &self.busybox)?;
        for applet in process::output(Command::new(BUSYBOX).arg("--list"))?.lines() {
            if applet != "busybox" {
                archive.symlink(&format!("bin/{applet}"), "busybox")?;
            }
        }
        self.add_modules(&mut archive)?;
        for (name, content) in &self.scripts {
            archive.file(name, 0o755, content)?;
        }
        archive.finish()
    }

    /// The modules as `lib/modules/NAME.ko`, and `lib/modules/order` that lists them for `insmod`, but
    /// for those that are only carried: `later NAME`.
    fn add_modules(&self, archive: &mut Archive) -> anyhow::Result<()> {
        let lines = || {
            self.wanted
                .lines()
                .map(str::trim)
                .filter(|line| !line.is_empty() && !line.starts_with('#'))
        };
        let loaded: Vec<&str> = lines().filter(|line| !line.starts_with(LATER)).collect();
        let all: Vec<&str> = lines().map(|line| line.trim_start_matches(LATER)).collect();
        let modules = Modules::of(&self.kernel.modules())?;
        for file in modules.loading_order(&all)? {
            let name = file_name(&file);
            archive.file(&format!("lib/modules/{name}"), 0o644, &fs::read(&file)?)?;
        }
        let order: String = modules
            .loading_order(&loaded)?
            .iter()
            .map(|file| file_name(file) + "\n")
            .collect();
        archive.file("lib/modules/order", 0o644, order.as_bytes())
    }
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .map(Path::new)
        .map_or_else(String::new, |name| name.display().to_string())
}
