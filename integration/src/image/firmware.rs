//! Small disks that firmware boots: the stock kernel and the busybox initramfs on the EFI system partition.

use std::path::PathBuf;

use super::{busybox, grub, recipe_file};
use crate::{cache, tools};

/// A disk by the name `name`, which GRUB prints, with more `words` on the kernel's command line.
///
/// # Errors
/// When GRUB or what makes partitions cannot be had.
pub fn boot_disk(name: &str, words: &str) -> anyhow::Result<PathBuf> {
    tools::ensure(tools::FIRMWARE)?;
    let guest = busybox::guest()?;
    let config = String::from_utf8(recipe_file("firmware/grub.cfg")?)?;
    let config = config.replace("NAME", name).replace("WORDS", words);
    let directory = guest.directory.as_os_str().as_encoded_bytes();
    let key = cache::key(&[config.as_bytes(), directory, grub::VERSION]);
    let made = cache::directory("firmware-disk", &key, |partial| {
        let files = [(guest.kernel(), "vmlinuz"), (guest.initrd(), "initrd")];
        grub::make(partial, &partial.join("disk.raw"), &config, &files, None)
    })?;
    Ok(made.join("disk.raw"))
}
