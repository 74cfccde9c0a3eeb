//! A disk whose host does not finish what it was given: the guest's file lies on a file system that is
//! frozen.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use integration::image::ext4;
use integration::skip::without_kvm;
use integration::vmm_client::{VmmClient, VmmProcess};
use integration::{process, skip_if, testguest};
use proto_vmm::v1::{self, pci_device::Kind as Device, request::Kind};

use crate::by_hand::ByHand;

const FILE_SYSTEM_MIB: u64 = 16;
const DISK_BYTES: u64 = 2 << 20;
/// The guest gives a request up after 10 s.
const PATIENCE: Duration = Duration::from_secs(120);
/// Longer than a machine waits for a device to come to rest.
const LONGER_THAN_A_TRY: Duration = Duration::from_secs(7);

/// A file system in a file, mounted; thawed and gone in the end.
struct Freezer {
    directory: tempfile::TempDir,
    is_frozen: bool,
}

impl Freezer {
    fn new() -> anyhow::Result<Self> {
        let directory = tempfile::tempdir_in("/var/tmp")?;
        let image = directory.path().join("image");
        ext4::make(&image, FILE_SYSTEM_MIB, None)?;
        let freezer = Self {
            directory,
            is_frozen: false,
        };
        std::fs::create_dir(freezer.place())?;
        process::output(
            Command::new("mount")
                .args(["-o", "loop"])
                .args([&image, &freezer.place()]),
        )?;
        Ok(freezer)
    }

    fn place(&self) -> PathBuf {
        self.directory.path().join("mounted")
    }

    /// A disk on it, and the file system frozen.
    fn disk(&mut self) -> File {
        let path = self.place().join("disk");
        let disk = File::create_new(&path).expect("a file");
        disk.set_len(DISK_BYTES).expect("a disk");
        disk.sync_all().expect("on the disk");
        fsfreeze("--freeze", &self.place()).expect("frozen");
        self.is_frozen = true;
        File::options()
            .read(true)
            .write(true)
            .open(path)
            .unwrap_or(disk)
    }

    fn thaw(&mut self) {
        if std::mem::take(&mut self.is_frozen) {
            fsfreeze("--unfreeze", &self.place()).expect("thawed");
        }
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.thaw();
        // Lazily: a VMM that was just killed may have the file yet.
        let unmounted = process::output(Command::new("umount").arg("--lazy").arg(self.place()));
        unmounted.map(drop).unwrap_or_default();
    }
}

fn fsfreeze(how: &str, place: &Path) -> anyhow::Result<()> {
    process::output(Command::new("fsfreeze").arg(how).arg(place)).map(drop)
}

fn without_machine() -> Option<String> {
    without_kvm().or_else(testguest::missing).or_else(|| {
        let error = Freezer::new().err()?;
        Some(format!("no file system can be mounted: {error:#}"))
    })
}

/// A guest that has written to its disk in vain, and a client of its VMM. The VMM ends first.
struct Stuck {
    client: VmmClient,
    by_hand: ByHand,
    _vmm: VmmProcess,
    freezer: Freezer,
}

impl Drop for Stuck {
    fn drop(&mut self) {
        // What is in flight keeps the VMM from its end.
        self.freezer.thaw();
    }
}

impl Stuck {
    /// One that does `then` when it has given its disk up.
    fn new(then: &str) -> Self {
        Self::with(then, v1::VirtioBlk::default())
    }

    /// The same with a disk like `blk`.
    fn with(then: &str, blk: v1::VirtioBlk) -> Self {
        let mut freezer = Freezer::new().expect("looked at before");
        let disk = freezer.disk();
        let mut by_hand = ByHand::new(File::open(testguest::elf().expect("a guest")).expect("it"));
        if let Some(kernel) = &mut by_hand.config.kernel {
            kernel.cmdline = format!("tests=blk {then}");
        }
        let blk = v1::VirtioBlk { disk_fd: 4, ..blk };
        by_hand.config.devices = vec![v1::PciDevice::at(0, 1, Device::Blk(blk))];
        let vmm = VmmProcess::start().expect("a VMM");
        let mut client = vmm.connect().expect("connected");
        by_hand.boot_with(&mut client, &[std::os::fd::AsFd::as_fd(&disk)]);
        Self {
            client,
            by_hand,
            _vmm: vmm,
            freezer,
        }
    }

    fn status(&mut self) -> v1::MachineStatus {
        let answer = self.client.must(Kind::GetStatus(v1::GetStatus {}));
        let status = answer.expect("an answer").status.expect("a status");
        assert_eq!(status.exit, None, "{}", self.by_hand.printed());
        status
    }

    /// Waits until what the guest printed, or the machine's status, is so.
    fn until(&mut self, holds: impl Fn(&str, &v1::MachineStatus) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.status();
            let printed = self.by_hand.printed();
            if holds(&printed, &status) {
                return;
            }
            assert!(Instant::now() < deadline, "{status:?}:\n{printed}");
            // The guest's log is a file, and nothing signals its next line.
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn ticks(&self) -> usize {
        self.by_hand.printed().matches("TESTGUEST tick").count()
    }
}

#[test]
fn a_guest_that_starts_over_waits_for_its_disk() {
    skip_if!(without_machine());
    let mut guest = Stuck::new("then=reboot");
    guest.until(|printed, _| printed.contains("TESTGUEST reboot"));
    let asked = Instant::now();
    while asked.elapsed() < LONGER_THAN_A_TRY {
        let status = guest.status();
        assert_eq!(
            (status.state(), status.resets),
            (v1::MachineState::Running, 0)
        );
        // Nothing is to happen until the time is over; this is how often the status is checked meanwhile.
        std::thread::sleep(Duration::from_millis(100));
    }
    // It can be paused, which changes nothing about what it waits for.
    guest
        .client
        .must(Kind::Pause(v1::Pause {}))
        .expect("paused");
    guest.freezer.thaw();
    guest.until(|_, status| status.resets == 1);
    assert_eq!(guest.status().state(), v1::MachineState::Paused);
    assert_eq!(
        guest.by_hand.printed().matches("TESTGUEST reboot").count(),
        1
    );
    guest
        .client
        .must(Kind::Resume(v1::Resume {}))
        .expect("resumed");
    // The disk is as good as any now.
    guest.until(|printed, _| printed.contains("TESTGUEST blk ok"));
}

#[test]
fn a_guest_that_stops_its_disk_does_not_go_on_before_the_host_is_done() {
    skip_if!(without_machine());
    // Its driver has reset the disk by then, in vain.
    let mut guest = Stuck::new("then=detach tick_ms=50");
    let busy = v1::PauseReason::DeviceBusy;
    guest.until(|_, status| status.pause_reason() == busy);
    let printed = guest.by_hand.printed();
    // DEVICE_NEEDS_RESET and nothing else: the reset has not ended, and nothing else is possible.
    assert!(
        printed.contains("TESTGUEST detach 00:01.0 status=64"),
        "{printed}"
    );
    assert!(!printed.contains("TESTGUEST detached"), "{printed}");
    assert_eq!(guest.status().state(), v1::MachineState::Paused);
    let refused = guest.client.request(Kind::Resume(v1::Resume {}), &[]);
    let error = refused.expect("an answer").error.expect("a refusal");
    assert!(error.message.contains("does not come to rest"), "{error:?}");
    // It goes on by itself.
    guest.freezer.thaw();
    guest.until(|printed, _| printed.matches("TESTGUEST tick").count() > 5);
    let printed = guest.by_hand.printed();
    assert!(
        printed.contains("TESTGUEST detached 00:01.0 status=0"),
        "{printed}"
    );
    assert_eq!(guest.status().state(), v1::MachineState::Running);
}

#[test]
fn a_reset_that_a_disk_does_not_allow_is_refused_and_the_guest_goes_on() {
    skip_if!(without_machine());
    let mut guest = Stuck::new("then=tick tick_ms=50");
    guest.until(|printed, _| printed.contains("TESTGUEST tick"));
    let refused = guest.client.request(Kind::Reset(v1::Reset {}), &[]);
    let error = refused.expect("an answer").error.expect("a refusal");
    assert!(error.message.contains("does not come to rest"), "{error:?}");
    let (before, status) = (guest.ticks(), guest.status());
    assert_eq!(
        (status.state(), status.resets),
        (v1::MachineState::Running, 0)
    );
    guest.until(|printed, _| printed.matches("TESTGUEST tick").count() > before + 5);
    guest.freezer.thaw();
    guest
        .client
        .must(Kind::Reset(v1::Reset {}))
        .expect("the host is done");
    guest.until(|printed, status| status.resets == 1 && printed.contains("TESTGUEST blk ok"));
}

#[test]
fn a_thread_that_the_host_keeps_keeps_neither_a_pause_nor_a_stop_waiting_for_ever() {
    skip_if!(without_machine());
    let blk = v1::VirtioBlk {
        io: v1::DiskIo::Threads.into(),
        ..v1::VirtioBlk::default()
    };
    let mut guest = Stuck::with("then=poweroff", blk);
    // Until the guest has written.
    let error = loop {
        let paused = guest.client.request(Kind::Pause(v1::Pause {}), &[]);
        if let Some(error) = paused.expect("an answer").error {
            break error;
        }
        let resumed = guest.client.must(Kind::Resume(v1::Resume {}));
        resumed.expect("resumed");
        // The guest has to run for its write to come; nothing signals it, because the disk does not answer.
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(error.message.contains("0000:00:01.0"), "{error:?}");
    assert!(error.message.contains("does not come to rest"), "{error:?}");
    assert_eq!(guest.status().state(), v1::MachineState::Running);
    let reason = "test".to_owned();
    guest
        .client
        .must(Kind::Stop(v1::Stop { reason }))
        .expect("stopped");
    let exit = guest.client.wait_for_exit().expect("an end");
    assert_eq!(exit.reason(), v1::ExitReason::Stopped);
    assert!(exit.detail.contains("0000:00:01.0"), "{exit:?}");
    assert!(guest.freezer.is_frozen);
}
