//! A disk with Debian as people have it: systemd, cloud-init, the guest agent, an SSH server, a login on the
//! serial console, GRUB for both firmwares.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{debian, ext4, grub, recipe_file};
use crate::{artifacts, cache, process, tools};

const CONFIG: &str = "debian/grub.cfg";
const SETUP: &str = "debian/setup";
/// What the script puts into the tree.
const FILES: [&str; 2] = ["debian/cloud.cfg", "debian/patience.conf"];
/// Separated by commas.
const PACKAGES: &str = "systemd,systemd-sysv,udev,dbus,cloud-init,qemu-guest-agent,openssh-server,sudo,\
                        linux-image-cloud-amd64,initramfs-tools,zstd,efibootmgr,e2fsprogs,ifupdown,isc-dhcp-client,\
                        iproute2,procps,less,nano";
/// By which GRUB and the kernel find it, besides.
const LABEL: &str = "debian-root";
/// Room for the packages and as much again; the file is sparse.
const ROOT_MIB: u64 = 2048;

/// The disk, twice. It is shared by everybody, so nobody writes to it.
#[derive(Clone, Debug)]
pub struct DebianDisk {
    /// As a guest has it.
    pub raw: PathBuf,
    /// The same, compressed, as distributions have theirs.
    pub qcow2: PathBuf,
}

/// The disk, made when the cache has none of this recipe: some minutes. One in the cache stays, whatever newer
/// packages there are.
///
/// # Errors
/// When mmdebstrap, GRUB or what makes partitions fails; it needs the network the first time.
pub fn debian_disk() -> anyhow::Result<DebianDisk> {
    let made = cache::directory("debian-disk", &key()?, |partial| {
        for needed in [tools::IMAGES, tools::FIRMWARE, tools::NODE] {
            tools::ensure(needed)?;
        }
        eprintln!("making the Debian disk by mmdebstrap; about three minutes");
        build(partial)
    })?;
    Ok(DebianDisk {
        raw: made.join("disk.raw"),
        qcow2: made.join("disk.qcow2"),
    })
}

fn key() -> anyhow::Result<String> {
    let mut parts = vec![
        debian::SUITE.as_bytes().to_vec(),
        PACKAGES.as_bytes().to_vec(),
        LABEL.as_bytes().to_vec(),
        ROOT_MIB.to_le_bytes().to_vec(),
        debian::VERSION.to_vec(),
        grub::VERSION.to_vec(),
    ];
    for file in [CONFIG, SETUP].into_iter().chain(FILES) {
        parts.push(recipe_file(file)?);
    }
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    Ok(cache::key(&parts))
}

fn build(partial: &Path) -> anyhow::Result<()> {
    let tree = partial.join("tree");
    debian::tree(PACKAGES, &tree)?;
    let setup = artifacts::workspace()?.join("guest-images").join(SETUP);
    process::output(Command::new("sh").arg(setup).arg(&tree).arg(LABEL))?;
    let root = partial.join("root.ext4");
    ext4::make(&root, ROOT_MIB, Some(&tree))?;
    process::output(Command::new("/sbin/tune2fs").args(["-L", LABEL]).arg(&root))?;
    fs::remove_dir_all(tree)?;
    let config = String::from_utf8(recipe_file(CONFIG)?)?.replace("ROOT", LABEL);
    let raw = partial.join("disk.raw");
    grub::make(partial, &raw, &config, &[], Some(&root))?;
    fs::remove_file(root)?;
    process::output(
        Command::new("qemu-img")
            .args(["convert", "-q", "-f", "raw", "-O", "qcow2", "-c"])
            .arg(&raw)
            .arg(partial.join("disk.qcow2")),
    )
    .map(drop)
}
