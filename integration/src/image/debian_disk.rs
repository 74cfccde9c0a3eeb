//! Disks with Debian: one as people have it, with systemd, the guest agent, a login on the serial console and much else,
//! and a small one that is there within a minute even in a node in a box. cloud-init and an SSH server are in both, and
//! GRUB for both firmwares.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{busybox, debian, ext4, grub, kernel, recipe_file};
use crate::{artifacts, cache, process, tools};

/// The disk, twice. It is shared by everybody, so nobody writes to it.
#[derive(Clone, Debug)]
pub struct DebianDisk {
    /// As a guest has it.
    pub raw: PathBuf,
    /// The same, compressed, as distributions have theirs.
    pub qcow2: PathBuf,
}

/// What a disk is made of.
struct Recipe {
    /// Of the image in the cache.
    name: &'static str,
    /// How long it takes.
    patience: &'static str,
    /// Below `guest-images`: holds `grub.cfg` and the script `setup`, which is given the tree and the label.
    directory: &'static str,
    /// Of `directory`: what the script puts into the tree.
    files: &'static [&'static str],
    /// Separated by commas.
    packages: &'static str,
    /// By which GRUB and the kernel may find the root file system.
    label: &'static str,
    /// Of the root file system: room for the packages and as much again; the file is sparse.
    root_mib: u64,
    /// Whether kernel and initramfs are those of [`busybox::cloud`], on the system partition, and not the packages' own.
    is_booted_by_busybox: bool,
}

const DEBIAN: Recipe = Recipe {
    name: "debian-disk",
    patience: "three minutes",
    directory: "debian",
    files: &["cloud.cfg", "patience.conf"],
    packages: "systemd,systemd-sysv,udev,dbus,cloud-init,qemu-guest-agent,openssh-server,sudo,\
               linux-image-cloud-amd64,initramfs-tools,zstd,efibootmgr,e2fsprogs,ifupdown,isc-dhcp-client,\
               iproute2,procps,less,nano",
    label: "debian-root",
    root_mib: 2048,
    is_booted_by_busybox: false,
};

const CLOUD: Recipe = Recipe {
    name: "cloud-disk",
    patience: "two minutes",
    directory: "cloud",
    files: &["cloud.cfg", "first"],
    packages: "cloud-init,openssh-server,qemu-guest-agent,isc-dhcp-client,iproute2,sudo,udev",
    label: "cloud-root",
    root_mib: 512,
    is_booted_by_busybox: true,
};

/// Debian as people have it, made when the cache has none of this recipe: some minutes. One in the cache stays, whatever
/// newer packages there are.
///
/// # Errors
/// When mmdebstrap, GRUB or what makes partitions fails; it needs the network the first time.
pub fn debian_disk() -> anyhow::Result<DebianDisk> {
    DEBIAN.disk()
}

/// The small one, which has cloud-init's stages and nothing of systemd; made as [`debian_disk`] is.
///
/// # Errors
/// As [`debian_disk`].
pub fn cloud_disk() -> anyhow::Result<DebianDisk> {
    CLOUD.disk()
}

impl Recipe {
    fn disk(&self) -> anyhow::Result<DebianDisk> {
        let boot = self.boot_files()?;
        let made = cache::directory(self.name, &self.key(&boot)?, |partial| {
            for needed in [tools::IMAGES, tools::FIRMWARE, tools::NODE] {
                tools::ensure(needed)?;
            }
            eprintln!(
                "making {} by mmdebstrap; about {}",
                self.name, self.patience
            );
            self.build(partial, &boot)
        })?;
        Ok(DebianDisk {
            raw: made.join("disk.raw"),
            qcow2: made.join("disk.qcow2"),
        })
    }

    /// What is on the system partition beside GRUB.
    fn boot_files(&self) -> anyhow::Result<Vec<(PathBuf, &'static str)>> {
        if !self.is_booted_by_busybox {
            return Ok(Vec::new());
        }
        let kernel = kernel::stock()?;
        let initramfs = busybox::cloud(&kernel)?;
        Ok(vec![(kernel.bzimage(), "vmlinuz"), (initramfs, "initrd")])
    }

    fn recipe_file(&self, name: &str) -> anyhow::Result<Vec<u8>> {
        recipe_file(&format!("{}/{name}", self.directory))
    }

    fn key(&self, boot: &[(PathBuf, &str)]) -> anyhow::Result<String> {
        let mut parts = vec![
            debian::SUITE.as_bytes().to_vec(),
            self.packages.as_bytes().to_vec(),
            self.label.as_bytes().to_vec(),
            self.root_mib.to_le_bytes().to_vec(),
            debian::VERSION.to_vec(),
            grub::VERSION.to_vec(),
        ];
        for file in ["grub.cfg", "setup"].iter().chain(self.files) {
            parts.push(self.recipe_file(file)?);
        }
        // Their places in the cache say what they are.
        for (file, _) in boot {
            parts.push(file.as_os_str().as_encoded_bytes().to_vec());
        }
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        Ok(cache::key(&parts))
    }

    fn build(&self, partial: &Path, boot: &[(PathBuf, &str)]) -> anyhow::Result<()> {
        let tree = partial.join("tree");
        debian::tree(self.packages, &tree)?;
        let setup = artifacts::workspace()?
            .join("guest-images")
            .join(self.directory)
            .join("setup");
        process::output(Command::new("sh").arg(setup).arg(&tree).arg(self.label))?;
        let root = partial.join("root.ext4");
        ext4::make(&root, self.root_mib, Some(&tree))?;
        let mut label = Command::new("/sbin/tune2fs");
        process::output(label.args(["-L", self.label]).arg(&root))?;
        fs::remove_dir_all(tree)?;
        let config = String::from_utf8(self.recipe_file("grub.cfg")?)?.replace("ROOT", self.label);
        let raw = partial.join("disk.raw");
        grub::make(partial, &raw, &config, boot, Some(&root))?;
        fs::remove_file(root)?;
        process::output(
            Command::new("qemu-img")
                .args(["convert", "-q", "-f", "raw", "-O", "qcow2", "-c"])
                .arg(&raw)
                .arg(partial.join("disk.qcow2")),
        )
        .map(drop)
    }
}
