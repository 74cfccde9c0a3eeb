//! A disk whose host loses what was written: a loop device over a sparse file of a tmpfs that is full. Its
//! writeback fails once, and a sync that is tried again succeeds without the data.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use integration::skip::without_kvm;
use integration::vmm_client::{VmmClient, VmmProcess};
use integration::{process, skip_if};
use proto_vmm::v1::{self, pci_device::Kind as Device, request::Kind};

use crate::by_hand::{ByHand, soon};
use crate::snapshot::{restore_with, save};
use crate::tiny_guest::{kernel, print, sleep};

/// The host's disk; gone in the end.
struct FullHost {
    directory: tempfile::TempDir,
    disk: Option<PathBuf>,
}

impl FullHost {
    fn new() -> anyhow::Result<Self> {
        let mut host = Self {
            directory: tempfile::tempdir()?,
            disk: None,
        };
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=4m", "full"]);
        process::output(mount.arg(host.directory.path()))?;
        let sparse = host.directory.path().join("sparse");
        File::create(&sparse)?.set_len(32 << 20)?;
        let mut losetup = Command::new("losetup");
        let made = process::output(losetup.args(["-f", "--show"]).arg(&sparse))?;
        host.disk = Some(PathBuf::from(made.trim()));
        // As much as there is room for.
        std::fs::write(host.filler(), vec![1; 8 << 20]).unwrap_or_default();
        Ok(host)
    }

    fn filler(&self) -> PathBuf {
        self.directory.path().join("filler")
    }

    fn open(&self) -> File {
        let disk = self.disk.as_deref().unwrap_or(Path::new(""));
        let mut options = File::options();
        options.read(true).write(true);
        options.open(disk).expect("the disk")
    }

    fn make_space(&self) {
        std::fs::remove_file(self.filler()).expect("the filler");
    }
}

impl Drop for FullHost {
    fn drop(&mut self) {
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
    let mut by_hand = ByHand::new(kernel(&[print("r"), sleep()]));
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
    let event = std::iter::from_fn(|| client.next_event().ok())
        .find(|event| event.kind() == v1::EventKind::DiskSyncFailed)
        .expect("an event");
    let told = event.status.expect("a status").disk_sync_failures;
    host.make_space();
    disk.sync_data().unwrap();
    let failure = v1::DiskSyncFailure {
        disk: Some(v1::PciAddress {
            device: 1,
            ..v1::PciAddress::default()
        }),
        error: std::io::Error::from_raw_os_error(5).to_string(),
    };
    assert_eq!(told, std::slice::from_ref(&failure));
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
