//! Disks that firmware boots: a GPT with GRUB for BIOS and for UEFI, the stock kernel and the busybox
//! initramfs.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use super::busybox;
use super::recipe_file;
use crate::{cache, process, tools};

const GRUB: &str = "/usr/lib/grub";
const SECTOR: u64 = 512;
/// Where GRUB's core is, behind the partition table.
const CORE_SECTOR: u64 = 34;
/// Where the system partition begins.
const SYSTEM_SECTOR: u64 = 2048;
const SYSTEM_MIB: u64 = 64;
/// For the partition table at the end.
const END_MIB: u64 = 1;

/// Modules of both GRUBs.
const MODULES: [&str; 10] = [
    "part_gpt", "fat", "normal", "linux", "serial", "terminal", "echo", "test", "reboot", "halt",
];

/// A disk by the name `name`, which GRUB prints, with more `words` on the kernel's command line.
///
/// # Errors
/// When GRUB or what makes partitions can not be had.
pub fn boot_disk(name: &str, words: &str) -> anyhow::Result<PathBuf> {
    tools::ensure(tools::FIRMWARE)?;
    let guest = busybox::guest()?;
    let config = String::from_utf8(recipe_file("firmware/grub.cfg")?)?;
    let config = config.replace("NAME", name).replace("WORDS", words);
    let directory = guest.directory.as_os_str().as_encoded_bytes();
    let key = cache::key(&[config.as_bytes(), directory, b"layout 1"]);
    let made = cache::directory("firmware-disk", &key, |partial| {
        let image = partial.join("disk.raw");
        partition(&image)?;
        install_bios(partial, &image)?;
        let system = partial.join("system.raw");
        make_system(partial, &system, &guest, &config)?;
        copy(&system, &image, SYSTEM_SECTOR * SECTOR)?;
        fs::remove_file(system)?;
        Ok(())
    })?;
    Ok(made.join("disk.raw"))
}

/// A BIOS boot partition for GRUB's core, and an EFI system partition for everything else.
fn partition(image: &Path) -> anyhow::Result<()> {
    let mib = SYSTEM_SECTOR * SECTOR / (1 << 20) + SYSTEM_MIB + END_MIB;
    File::create(image)?.set_len(mib << 20)?;
    let core = format!("1:{CORE_SECTOR}:{}", SYSTEM_SECTOR - 1);
    let last = SYSTEM_SECTOR + (SYSTEM_MIB << 20) / SECTOR - 1;
    let system = format!("2:{SYSTEM_SECTOR}:{last}");
    let mut command = Command::new("/sbin/sgdisk");
    command.args(["--set-alignment=1", "--new", &core, "--typecode=1:ef02"]);
    command.args(["--new", &system, "--typecode=2:ef00"]);
    process::output(command.arg(image)).map(drop)
}

fn make_grub(platform: &str, prefix: &str, more: &str, into: &Path) -> anyhow::Result<()> {
    let mut command = Command::new("grub-mkimage");
    command
        .args(["-O", platform, "-p", prefix, "-o"])
        .arg(into)
        .arg("-d")
        .arg(Path::new(GRUB).join(platform))
        .args(MODULES)
        .args(more.split_whitespace());
    process::output(&mut command).map(drop)
}

/// As `grub-bios-setup` does, which wants a disk that its kernel knows: the first sector loads the
/// first of the core, which loads the rest.
fn install_bios(partial: &Path, image: &Path) -> anyhow::Result<()> {
    /// Of the first sector: where the core begins, and the end of the code.
    const CORE_AT: usize = 0x5c;
    const CODE: usize = 440;
    /// Of the core's first sector: where its second is.
    const REST_AT: usize = 0x1f4;
    let core_file = partial.join("core.img");
    make_grub("i386-pc", "(,gpt2)/", "biosdisk", &core_file)?;
    let mut core = fs::read(&core_file)?;
    fs::remove_file(core_file)?;
    let room = (SYSTEM_SECTOR - CORE_SECTOR) * SECTOR;
    ensure!(
        core.len() as u64 <= room,
        "GRUB's core has {} bytes",
        core.len()
    );
    let mut first = fs::read(Path::new(GRUB).join("i386-pc/boot.img"))?;
    first.truncate(CODE);
    put(&mut first, CORE_AT, CORE_SECTOR)?;
    put(&mut core, REST_AT, CORE_SECTOR + 1)?;
    let disk = OpenOptions::new().write(true).open(image)?;
    disk.write_all_at(&first, 0)?;
    disk.write_all_at(&core, CORE_SECTOR * SECTOR)?;
    Ok(())
}

fn put(sector: &mut [u8], at: usize, number: u64) -> anyhow::Result<()> {
    let place = sector.get_mut(at..at + 8).context("a short sector")?;
    place.copy_from_slice(&number.to_le_bytes());
    Ok(())
}

fn make_system(
    partial: &Path,
    system: &Path,
    guest: &busybox::GuestImage,
    config: &str,
) -> anyhow::Result<()> {
    File::create(system)?.set_len(SYSTEM_MIB << 20)?;
    process::output(
        Command::new("/sbin/mkfs.vfat")
            .args(["-F", "32"])
            .arg(system),
    )?;
    let loader = partial.join("bootx64.efi");
    make_grub("x86_64-efi", "/", "", &loader)?;
    let config_file = partial.join("grub.cfg");
    fs::write(&config_file, config)?;
    let mtools = |program: &str| {
        let mut command = Command::new(program);
        command.arg("-i").arg(system);
        command
    };
    process::output(mtools("mmd").args(["::/EFI", "::/EFI/BOOT"]))?;
    let files = [
        (loader.clone(), "::/EFI/BOOT/BOOTX64.EFI"),
        (config_file.clone(), "::/grub.cfg"),
        (guest.kernel(), "::/vmlinuz"),
        (guest.initrd(), "::/initrd"),
    ];
    for (from, to) in files {
        process::output(mtools("mcopy").arg(from).arg(to))?;
    }
    fs::remove_file(loader)?;
    fs::remove_file(config_file)?;
    Ok(())
}

/// Copies what is not zero.
fn copy(from: &Path, to: &Path, at: u64) -> anyhow::Result<()> {
    let mut from = File::open(from)?;
    let to = OpenOptions::new().write(true).open(to)?;
    let mut block = vec![0; 1 << 20];
    let mut place = at;
    loop {
        let count = from.read(&mut block)?;
        if count == 0 {
            return Ok(());
        }
        let content = block.get(..count).unwrap_or_default();
        if content.iter().any(|byte| *byte != 0) {
            to.write_all_at(content, place)?;
        }
        place += count as u64;
    }
}
