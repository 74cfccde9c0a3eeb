//! What disks that firmware boots have in common: a GPT, with GRUB for BIOS and for UEFI.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::process;

/// Of a key: changes when this file makes another disk of the same parts.
pub(super) const VERSION: &[u8] = b"layout 2";

const GRUB: &str = "/usr/lib/grub";
const SECTOR: u64 = 512;
/// Where GRUB's core is, behind the partition table.
const CORE_SECTOR: u64 = 34;
/// Where the system partition begins.
const SYSTEM_SECTOR: u64 = 2048;
const SYSTEM_MIB: u64 = 64;
/// First sector of the root partition, behind the system partition.
const ROOT_SECTOR: u64 = SYSTEM_SECTOR + (SYSTEM_MIB << 20) / SECTOR;
/// For the partition table at the end.
const END_MIB: u64 = 1;

/// Modules of both GRUBs.
const MODULES: [&str; 13] = [
    "part_gpt",
    "fat",
    "ext2",
    "search",
    "search_label",
    "normal",
    "linux",
    "serial",
    "terminal",
    "echo",
    "test",
    "reboot",
    "halt",
];

/// Makes the disk `image`: on its system partition is `config`, and each of `files` by its name there; its last
/// partition, if there is one, has the content of `root`, whole MiB.
pub(super) fn make(
    partial: &Path,
    image: &Path,
    config: &str,
    files: &[(PathBuf, &str)],
    root: Option<&Path>,
) -> anyhow::Result<()> {
    let root_bytes = root.map_or(Ok(0), |root| fs::metadata(root).map(|root| root.len()))?;
    partition(image, root_bytes)?;
    install_bios(partial, image)?;
    let system = partial.join("system.raw");
    make_system(partial, &system, config, files)?;
    copy(&system, image, SYSTEM_SECTOR * SECTOR)?;
    fs::remove_file(system)?;
    if let Some(root) = root {
        copy(root, image, ROOT_SECTOR * SECTOR)?;
    }
    Ok(())
}

/// A BIOS boot partition for GRUB's core, an EFI system partition, and one for everything else.
fn partition(image: &Path, root_bytes: u64) -> anyhow::Result<()> {
    let bytes = ROOT_SECTOR * SECTOR + root_bytes + (END_MIB << 20);
    File::create(image)?.set_len(bytes)?;
    let core = format!("1:{CORE_SECTOR}:{}", SYSTEM_SECTOR - 1);
    let system = format!("2:{SYSTEM_SECTOR}:{}", ROOT_SECTOR - 1);
    let mut command = Command::new("/sbin/sgdisk");
    command.args(["--set-alignment=1", "--new", &core, "--typecode=1:ef02"]);
    command.args(["--new", &system, "--typecode=2:ef00"]);
    if root_bytes > 0 {
        let root = format!("3:{ROOT_SECTOR}:{}", ROOT_SECTOR + root_bytes / SECTOR - 1);
        command.args(["--new", &root, "--typecode=3:8304"]);
    }
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
    config: &str,
    files: &[(PathBuf, &str)],
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
    let own = [
        (loader.clone(), "EFI/BOOT/BOOTX64.EFI"),
        (config_file.clone(), "grub.cfg"),
    ];
    for (from, to) in own.iter().chain(files) {
        process::output(mtools("mcopy").arg(from).arg(format!("::/{to}")))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools;

    #[test]
    fn a_disk_has_both_loaders_its_configuration_and_the_root_where_its_table_says() {
        tools::ensure(tools::FIRMWARE).expect("what makes disks");
        let directory = tempfile::tempdir().expect("a directory");
        let directory = directory.path();
        let (root, image) = (directory.join("root"), directory.join("disk.raw"));
        fs::write(&root, vec![b'r'; 1 << 20]).expect("written");
        make(directory, &image, "echo of the test", &[], Some(&root)).expect("a disk");

        let table = process::output(Command::new("/sbin/sgdisk").arg("--verify").arg(&image));
        let table = table.expect("a table");
        assert!(table.contains("No problems found"), "{table}");
        let disk = fs::read(&image).expect("read");
        let at = |sector: u64| {
            let from = usize::try_from(sector * SECTOR).expect("small");
            disk.get(from..).expect("inside")
        };
        let core = CORE_SECTOR.to_le_bytes();
        assert_eq!(at(0).get(0x5c..0x64), Some(core.as_slice()));
        assert_ne!(at(CORE_SECTOR).first(), Some(&0));
        let shown = process::output(
            Command::new("mtype")
                .arg("-i")
                .arg(format!("{}@@{}", image.display(), SYSTEM_SECTOR * SECTOR))
                .arg("::/grub.cfg"),
        );
        assert_eq!(shown.expect("a file"), "echo of the test");
        let content = at(ROOT_SECTOR).get(..1 << 20).expect("a root");
        assert!(content.iter().all(|byte| *byte == b'r'));
        let end = at(ROOT_SECTOR).get(1 << 20).expect("more");
        assert_eq!(*end, 0);
    }
}
