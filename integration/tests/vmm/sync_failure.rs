//! A disk whose host loses what was written: a loop device over a sparse file of a tmpfs that is full. Its
//! writeback fails once, and a sync that is tried again succeeds without the data.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use integration::firmware_code::{self, program, put, reach_all, stay, variables_at};
use integration::skip::without_kvm;
use integration::vmm_client::{VmmClient, VmmProcess};
use integration::{process, skip_if};
use proto_vmm::v1::{self, pci_device::Kind as Device, request::Kind};

use crate::by_hand::{ByHand, soon};
use crate::firmware::by_firmware;
use crate::snapshot::{restore_with, save};
use crate::tiny_guest::{halt, kernel, print};

/// The host's disk; gone in the end.
struct FullHost {
    directory: tempfile::TempDir,
    disk: Option<PathBuf>,
    has_file_system: bool,
}

impl FullHost {
    fn new() -> anyhow::Result<Self> {
        let host = Self::with_space()?;
        host.fill_up();
        Ok(host)
    }

    /// The disk has a file system, which stops at no error, and it a file of that size without data.
    fn with_file(bytes: u64) -> anyhow::Result<(Self, File)> {
        let mut host = Self::with_space()?;
        let mut make = Command::new("mkfs.ext4");
        make.args(["-q", "-O", "^has_journal", "-E", "lazy_itable_init=0"]);
        process::output(make.arg(host.disk()))?;
        let at = host.mount_point();
        std::fs::create_dir(&at)?;
        process::output(Command::new("mount").args([host.disk(), &at]))?;
        host.has_file_system = true;
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        let file = options.open(at.join("file"))?;
        file.set_len(bytes)?;
        file.sync_all()?;
        host.fill_up();
        Ok((host, file))
    }

    fn with_space() -> anyhow::Result<Self> {
        let mut host = Self {
            directory: tempfile::tempdir()?,
            disk: None,
            has_file_system: false,
        };
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=4m", "full"]);
        process::output(mount.arg(host.directory.path()))?;
        let sparse = host.directory.path().join("sparse");
        File::create(&sparse)?.set_len(32 << 20)?;
        let mut losetup = Command::new("losetup");
        let made = process::output(losetup.args(["-f", "--show"]).arg(&sparse))?;
        host.disk = Some(PathBuf::from(made.trim()));
        Ok(host)
    }

    /// With as much as there is room for.
    fn fill_up(&self) {
        std::fs::write(self.filler(), vec![1; 8 << 20]).unwrap_or_default();
    }

    fn disk(&self) -> &Path {
        self.disk.as_deref().unwrap_or(Path::new(""))
    }

    fn mount_point(&self) -> PathBuf {
        self.directory.path().join("mounted")
    }

    fn filler(&self) -> PathBuf {
        self.directory.path().join("filler")
    }

    fn open(&self) -> File {
        let mut options = File::options();
        options.read(true).write(true);
        options.open(self.disk()).expect("the disk")
    }

    fn make_space(&self) {
        std::fs::remove_file(self.filler()).expect("the filler");
    }
}

impl Drop for FullHost {
    fn drop(&mut self) {
        if self.has_file_system {
            let mut umount = Command::new("umount");
            let gone = process::output(umount.arg("--lazy").arg(self.mount_point()));
            gone.map(drop).unwrap_or_default();
        }
        if let Some(disk) = &self.disk {
            let gone = process::output(Command::new("losetup").arg("-d").arg(disk));
            gone.map(drop).unwrap_or_default();
        }
        let mut umount = Command::new("umount");
        let gone = process::output(umount.arg("--lazy").arg(self.directory.path()));
        gone.map(drop).unwrap_or_default();
    }
}

fn without_machine() -> Option<String> {
    without_kvm().or_else(|| {
        let error = FullHost::new().err()?;
        Some(format!("no disk that loses data can be made: {error:#}"))
    })
}

/// A guest with a disk, that prints "r" and sleeps.
fn guest() -> ByHand {
    let mut by_hand = ByHand::new(kernel(&[print("r"), halt()]));
    let blk = v1::VirtioBlk {
        disk_fd: 4,
        ..v1::VirtioBlk::default()
    };
    by_hand.config.devices = vec![v1::PciDevice::at(0, 1, Device::Blk(blk))];
    by_hand
}

fn lost(client: &mut VmmClient) -> Vec<v1::DiskSyncFailure> {
    let answer = client.must(Kind::GetStatus(v1::GetStatus {}));
    let status = answer.expect("an answer").status.expect("a status");
    status.disk_sync_failures
}

#[test]
fn a_snapshot_syncs_disks_and_none_is_taken_of_data_that_is_lost() {
    skip_if!(without_machine());
    let host = FullHost::new().unwrap();
    let disk = host.open();
    let by_hand = guest();
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    by_hand.boot_with(&mut client, &[disk.as_fd()]);
    soon(|| by_hand.printed() == "r");
    client.must(Kind::Pause(v1::Pause {})).unwrap();
    // What a guest writes lies in the same page cache.
    disk.write_all_at(&[0x5a; 4096], 1 << 20).unwrap();
    assert_eq!(lost(&mut client), []);
    let file = tempfile::tempfile().unwrap();
    let error = save(&mut client, &file).error.expect("a refusal");
    assert_eq!(error.code(), v1::ErrorCode::Host);
    assert!(
        error.message.contains("the disk at 0000:00:01.0"),
        "{error:?}"
    );
    assert!(error.message.contains("Input/output error"), "{error:?}");
    assert_eq!(file.metadata().unwrap().len(), 0);
    // The status shows it, and still does when the host says that all is well.
    let reported = next_sync_failure(&mut client);
    host.make_space();
    disk.sync_data().unwrap();
    let failure = v1::DiskSyncFailure {
        disk: Some(v1::PciAddress {
            device: 1,
            ..v1::PciAddress::default()
        }),
        error: std::io::Error::from_raw_os_error(5).to_string(),
        is_variable_store: false,
    };
    assert_eq!(reported, std::slice::from_ref(&failure));
    assert_eq!(lost(&mut client), std::slice::from_ref(&failure));
    // The guest can be saved with what it has lost, and whoever goes on with it knows.
    assert_eq!(save(&mut client, &file).error, None);
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    let again = host.open();
    let restored = restore_with(&mut client, &guest(), &[again.as_fd()], &file);
    assert_eq!(restored.error, None);
    assert_eq!(lost(&mut client), [failure]);
    // A guest that is powered on anew has lost nothing yet.
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    guest().boot_with(&mut client, &[again.as_fd()]);
    assert_eq!(lost(&mut client), []);
}

const VARIABLES_BYTES: u16 = 8192;

fn without_file_system() -> Option<String> {
    without_kvm().or_else(|| {
        let error = FullHost::with_file(VARIABLES_BYTES.into()).err()?;
        Some(format!("no file that loses data can be made: {error:#}"))
    })
}

/// Firmware with a variable store, number 4, that does this, prints "r" and stays.
fn firmware(steps: &[Vec<u8>]) -> ByHand {
    let code = [
        reach_all(),
        steps.concat(),
        firmware_code::print("r"),
        stay(),
    ];
    by_firmware(&code.concat(), |firmware| firmware.variables_fd = Some(4))
}

/// Whether the variable store is the only one whose sync failed.
fn is_of_variables(lost: &[v1::DiskSyncFailure]) -> bool {
    // The error is that of the file system: no space, or an I/O error.
    let [failure] = lost else { return false };
    failure.is_variable_store && failure.disk.is_none() && !failure.error.is_empty()
}

fn next_sync_failure(client: &mut VmmClient) -> Vec<v1::DiskSyncFailure> {
    let event = std::iter::from_fn(|| client.next_event().ok())
        .find(|event| event.kind() == v1::EventKind::DiskSyncFailed)
        .expect("an event");
    event.status.expect("a status").disk_sync_failures
}

#[test]
fn a_variable_store_that_cannot_be_synced_is_reported_while_the_guest_runs() {
    skip_if!(without_file_system());
    let (_host, store) = FullHost::with_file(VARIABLES_BYTES.into()).unwrap();
    let at = variables_at(VARIABLES_BYTES.into());
    let by_hand = firmware(&[program(at, b'n')]);
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    by_hand.boot_with(&mut client, &[store.as_fd()]);
    assert!(is_of_variables(&next_sync_failure(&mut client)));
    soon(|| by_hand.printed() == "r");
    assert!(is_of_variables(&lost(&mut client)));
}

#[test]
fn no_snapshot_is_taken_of_variables_that_cannot_be_synced() {
    skip_if!(without_file_system());
    let (host, store) = FullHost::with_file(VARIABLES_BYTES.into()).unwrap();
    let at = variables_at(VARIABLES_BYTES.into());
    // Not read again, so that nothing has synced it yet.
    let by_hand = firmware(&[put(at, 0x10), put(at, b'n')]);
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    by_hand.boot_with(&mut client, &[store.as_fd()]);
    soon(|| by_hand.printed() == "r");
    client.must(Kind::Pause(v1::Pause {})).unwrap();
    assert_eq!(lost(&mut client), []);
    let file = tempfile::tempfile().unwrap();
    let error = save(&mut client, &file).error.expect("a refusal");
    assert_eq!(error.code(), v1::ErrorCode::Host);
    assert!(error.message.contains("the variable store"), "{error:?}");
    assert_eq!(file.metadata().unwrap().len(), 0);
    assert!(is_of_variables(&next_sync_failure(&mut client)));
    // As with a disk: the guest can be saved with what it has lost, and whoever goes on with it knows.
    host.make_space();
    assert_eq!(save(&mut client, &file).error, None);
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    let again = firmware(&[]);
    let restored = restore_with(&mut client, &again, &[store.as_fd()], &file);
    assert_eq!(restored.error, None);
    assert!(is_of_variables(&lost(&mut client)));
}
