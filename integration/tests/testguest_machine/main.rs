//! `testguest` in our own machine, in this process, on this host's own KVM: every virtio device with
//! interrupts and by polling, both boot protocols, and many machines at once.

#![forbid(unsafe_code)]

mod balloon;
mod console;
mod dirty;
mod fixtures;
mod in_a_node;
mod life;
mod machine;
mod memory;
mod net;
mod root_ports;
mod saved;
mod vsock;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use integration::testguest::{self, FIRST_WORD_ON_DISK, Results};
use integration::{process, skip, skip_if, tools};
use machine::*;
use vmm_devices::virtio::blk::{BlkConfig, DiskLimits, ErrorPolicies, ErrorPolicy};
use vmm_machine::{
    BuildError, Change, CpuConfig, CpuTopology, DeviceConfig, EndReason, GuestRam, KernelEntry,
    MachineConfig, MachineState, MachineThread, MemoryConfig, Observer, PauseReason, PciAddress,
    Placement, RebootPolicy, Request, RequestError, Restore, Snapshot, Status, load_ram,
};
use vmm_sys::threads::Threads;

const DISK_BYTES: u64 = 2 << 20;
const BRIDGE: &str = "br0";

fn without_machine() -> Option<String> {
    skip::without_kvm().or_else(testguest::missing)
}

fn disk() -> (File, DeviceConfig) {
    let file = tempfile::tempfile().expect("a file");
    file.set_len(DISK_BYTES).expect("a disk");
    let image = file.try_clone().expect("a descriptor").into();
    (
        file,
        DeviceConfig::Blk {
            image,
            config: BlkConfig {
                serial: "scratch".to_owned(),
                ..BlkConfig::default()
            },
        },
    )
}

fn ip(arguments: &[&str]) {
    process::output(Command::new("ip").args(arguments)).expect("ip succeeds");
}

fn without_network() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("a network of its own needs root".to_owned());
    }
    (!tools::is_there("ip")).then(|| "the program ip of the package iproute2 is missing".to_owned())
}

fn first_word(mut file: &File) -> u64 {
    let mut word = [0; 8];
    std::io::Seek::rewind(&mut file)
        .and_then(|()| file.read_exact(&mut word))
        .expect("8 bytes");
    u64::from_le_bytes(word)
}

fn assert_powered_off(status: &Status, results: &Results) {
    let end = status.end.as_ref().map(|end| end.reason);
    assert_eq!(end, Some(EndReason::PoweredOff), "{status:?} {results:#?}");
    assert!(
        status.first_timestamp_ns > 0,
        "the timestamp port was not written"
    );
}

#[test]
fn blk_and_rng_work_by_both_entries_with_interrupts_and_by_polling() {
    skip_if!(without_machine());
    for (entry, protocol) in [(KernelEntry::Pvh, "pvh"), (KernelEntry::Linux64, "linux64")] {
        for mode in ["irq", "poll"] {
            let (file, disk) = disk();
            let command_line = format!("tests=blk,rng mode={mode}");
            let machine = Machine::boot(&command_line, entry, vec![disk, DeviceConfig::Rng]);
            let (status, results) = machine.ended();
            assert_eq!(
                results.one("done"),
                "passed=5 failed=0 skipped=0",
                "{results:#?}"
            );
            assert!(
                results
                    .one("start")
                    .contains(&format!("protocol={protocol} "))
            );
            for device in ["blk", "rng"] {
                let irqs = results.number(device, "irqs");
                assert_eq!(irqs > 0, mode == "irq", "{device} had {irqs} interrupts");
            }
            assert_eq!(results.number("blk", "capacity_bytes"), DISK_BYTES);
            assert_eq!(first_word(&file), FIRST_WORD_ON_DISK);
            assert_powered_off(&status, &results);
        }
    }
}

#[test]
fn twenty_guests_run_at_once() {
    skip_if!(without_machine());
    let machines: Vec<_> = (0..20)
        .map(|_| {
            let (file, disk) = disk();
            let devices = vec![disk, DeviceConfig::Rng];
            (
                file,
                Machine::boot("tests=blk,rng", KernelEntry::Default, devices),
            )
        })
        .collect();
    for (file, machine) in machines {
        let (status, results) = machine.ended();
        assert_eq!(
            results.one("done"),
            "passed=5 failed=0 skipped=0",
            "{results:#?}"
        );
        assert_eq!(first_word(&file), FIRST_WORD_ON_DISK);
        assert_powered_off(&status, &results);
    }
}

/// A file system of 64 KiB at `path`, for this thread alone and those that it starts.
fn mount_small_disk(path: &Path) {
    use nix::mount::{MsFlags, mount};

    let none = None::<&str>;
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).expect("mounts of our own");
    mount(none, "/", none, MsFlags::MS_PRIVATE | MsFlags::MS_REC, none).expect("private mounts");
    mount(
        Some("small"),
        path,
        Some("tmpfs"),
        MsFlags::empty(),
        Some("size=64k"),
    )
    .expect("a tmpfs");
}

#[test]
fn a_full_host_pauses_the_guest_and_room_lets_it_go_on() {
    use nix::mount::{MsFlags, mount};

    let without_root =
        || (!nix::unistd::geteuid().is_root()).then(|| "a tmpfs of its own needs root".to_owned());
    skip_if!(without_machine().or_else(without_root));
    let directory = tempfile::tempdir().expect("a directory");
    mount_small_disk(directory.path());
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(directory.path().join("image"))
        .expect("a file");
    file.set_len(DISK_BYTES)
        .expect("a disk larger than its host");
    let waits = ErrorPolicy::StopOnNoSpace;
    let disk = DeviceConfig::Blk {
        image: file.try_clone().expect("a descriptor").into(),
        config: BlkConfig {
            errors: ErrorPolicies {
                read: waits,
                write: waits,
            },
            ..BlkConfig::default()
        },
    };
    let address = PciAddress::new(0, 1).expect("a slot");
    let threads = BTreeMap::from([(address, "disk".to_owned())]);
    let machine =
        Machine::boot_with_threads("tests=blk", KernelEntry::Default, vec![disk], threads);
    while machine.changes.recv_timeout(PATIENCE).expect("a pause") != Change::Paused {}
    let status = machine.handle.status();
    let reason = PauseReason::IoError {
        disk: address,
        errno: nix::errno::Errno::ENOSPC as i32,
    };
    assert_eq!(status.pause_reason, Some(reason));

    let remount = MsFlags::MS_REMOUNT;
    mount(
        None::<&str>,
        directory.path(),
        None::<&str>,
        remount,
        Some("size=8m"),
    )
    .expect("room");
    file.set_len(2 * DISK_BYTES).expect("a larger disk");
    let limits = DiskLimits::default();
    machine
        .handle
        .request(2, Request::GrowDisk { disk: address });
    machine.handle.request(
        3,
        Request::SetDiskLimits {
            disk: address,
            limits,
        },
    );
    machine.handle.request(4, Request::Resume);
    let (status, results) = machine.ended();
    assert!(results.one("done").contains(" failed=0 "), "{results:#?}");
    assert_eq!(first_word(&file), FIRST_WORD_ON_DISK);
    assert_eq!(status.pause_reason, None);
    assert_powered_off(&status, &results);
}

#[test]
fn a_reset_ends_a_guest_that_may_not_start_again() {
    skip_if!(without_machine());
    for (then, reason) in [
        ("reboot", EndReason::Reset),
        ("panic", EndReason::TripleFault),
    ] {
        let command_line = format!("tests=none then={then}");
        let (status, results) = Machine::boot(&command_line, KernelEntry::Default, vec![]).ended();
        let end = status.end.map(|end| end.reason);
        assert_eq!(end, Some(reason), "{results:#?}");
    }
}

#[test]
fn a_guest_moves_from_machine_to_machine_while_it_works() {
    skip_if!(without_machine());
    let mut moves = 0;
    for mode in ["irq", "poll"] {
        let (file, _) = disk();
        let devices = || {
            let image = file.try_clone().expect("a descriptor").into();
            let config = BlkConfig {
                serial: "scratch".to_owned(),
                ..BlkConfig::default()
            };
            vec![DeviceConfig::Blk { image, config }, DeviceConfig::Rng]
        };
        let command_line = format!("tests=blk,rng mode={mode} blk_kib=1024");
        let mut machine = Machine::boot(&command_line, KernelEntry::Default, devices());
        let ended = loop {
            machine.wait_until_it_runs();
            // Any moment is a good one.
            std::thread::sleep(Duration::from_millis(moves % 13));
            match machine.moved(&command_line, devices()) {
                Ok(next) => machine = next,
                Err(ended) => break ended,
            }
            moves += 1;
        };
        let (status, results) = ended.ended();
        assert_eq!(
            results.one("done"),
            "passed=5 failed=0 skipped=0",
            "after {moves} moves: {results:#?}"
        );
        assert_eq!(first_word(&file), FIRST_WORD_ON_DISK);
        let end = status.end.as_ref().map(|end| end.reason);
        assert_eq!(end, Some(EndReason::PoweredOff), "{status:?}");
    }
    println!("moved {moves} times");
    assert!(moves > 3, "the guest ended before it was moved");
}
