//! Recipes: what nodes and guests boot from. Each is made once and cached by what it depends on.

pub mod bench;
pub mod busybox;
pub mod clients_disk;
pub mod container;
pub mod cpio;
mod debian;
pub mod debian_disk;
pub mod ext4;
pub mod firmware;
mod grub;
pub mod kernel;
pub mod modules;
pub mod qemu;
pub mod rootfs;
pub mod seed;
pub mod tools_disk;

use anyhow::Context;

/// Reads `guest-images/PATH` of the clone.
pub(crate) fn recipe_file(path: &str) -> anyhow::Result<Vec<u8>> {
    let full = crate::artifacts::workspace()?
        .join("guest-images")
        .join(path);
    std::fs::read(&full).with_context(|| format!("{} cannot be read", full.display()))
}
