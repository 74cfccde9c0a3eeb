//! What a VMM may do, and that it does all it has to within that.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use integration::skip::without_kvm;
use integration::vmm_client::VmmProcess;
use integration::{artifacts, skip_if, testguest};
use nix::libc;
use nix::sys::signal::{Signal, kill};
use proto_vmm::v1::{self, request::Kind};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};

use crate::by_hand::{ByHand, soon};
use crate::network::{network, without_network};
use crate::tiny_guest::{halt, kernel, print};

const NOBODY: u32 = 65_534;
const DISK_BYTES: u64 = 2 << 20;

fn without_guest() -> Option<String> {
    without_kvm().or_else(testguest::missing)
}

fn only_root() -> Option<String> {
    let is_root = nix::unistd::geteuid().is_root();
    (!is_root).then(|| "becoming another user takes root".to_owned())
}

/// `field` of a status file of `/proc`.
fn field(status: &str, field: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.expect(field).trim().to_owned()
}

/// The status file of each thread, by the thread's name. Threads that KVM makes in the process of a VM
/// run no code of it.
fn threads(pid: u32) -> BTreeMap<String, String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("threads");
    tasks
        .map(|task| {
            let path = task.expect("a thread").path().join("status");
            let status = fs::read_to_string(path).expect("a status");
            (field(&status, "Name:"), status)
        })
        .filter(|(name, _)| !name.starts_with("kvm-"))
        .collect()
}

#[test]
fn every_thread_of_a_vmm_that_runs_a_guest_is_confined() {
    skip_if!(without_kvm());
    let mut by_hand = ByHand::new(kernel(&[print("up"), halt()]));
    let disk = disk();
    add_disk(&mut by_hand, 4, v1::DiskIo::Unspecified, "own");
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    by_hand.boot_with(&mut client, &[disk.as_fd()]);
    soon(|| by_hand.printed() == "up");

    let threads = threads(vmm.pid());
    let names: Vec<&str> = threads.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        ["devices", "io-own", "kvmlet-vmm", "machine", "vcpu0"]
    );
    for (name, status) in &threads {
        let seccomp = field(status, "Seccomp:");
        // The one of the process, and that of its kind.
        let filters = field(status, "Seccomp_filters:");
        assert_eq!((seccomp.as_str(), filters.as_str()), ("2", "2"), "{name}");
        assert_eq!(field(status, "NoNewPrivs:"), "1", "{name}");
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(field(status, set), "0000000000000000", "{name} {set}");
        }
    }
    let limits = fs::read_to_string(format!("/proc/{}/limits", vmm.pid())).unwrap();
    let limit = |name| {
        let text = field(&limits, name);
        let numbers: Vec<u64> = text
            .split_whitespace()
            .take(2)
            .map(|number| number.parse().expect("a number"))
            .collect();
        numbers
    };
    assert_eq!(limit("Max core file size"), [0, 0]);
    assert!(limit("Max open files").iter().all(|most| *most <= 4096));
    assert!(!vmm.log().unwrap().contains("Landlock") || !has_landlock());
    assert_ram_is_in_no_dump(vmm.pid());
}

/// Every mapping of guest memory says "do not dump" (`dd` in smaps).
fn assert_ram_is_in_no_dump(pid: u32) {
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps")).expect("smaps");
    let mut ram = false;
    let mut found = 0;
    for line in smaps.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            if ram {
                assert!(flags.split_whitespace().any(|flag| flag == "dd"), "{flags}");
                found += 1;
            }
        } else if !line.contains(" kB") && line.contains('-') {
            ram = line.contains("kvmlet-guest-ram");
        }
    }
    assert!(found > 0, "no guest memory is mapped");
}

/// Linux 5.13 and later have it, unless a boot option leaves it out.
fn has_landlock() -> bool {
    fs::read_to_string("/sys/kernel/security/lsm").is_ok_and(|names| names.contains("landlock"))
}

fn disk() -> File {
    let file = tempfile::tempfile().expect("a file");
    file.set_len(DISK_BYTES).expect("a disk");
    file
}

/// A disk at the next free place, whose image is descriptor `disk_fd`.
fn add_disk(by_hand: &mut ByHand, disk_fd: u32, io: v1::DiskIo, thread: &str) {
    let blk = v1::VirtioBlk {
        disk_fd,
        io: io.into(),
        serial: "scratch".to_owned(),
        discard: true,
        ..v1::VirtioBlk::default()
    };
    add(by_hand, v1::pci_device::Kind::Blk(blk), thread);
}

fn add(by_hand: &mut ByHand, kind: v1::pci_device::Kind, thread: &str) {
    let devices = &mut by_hand.config.devices;
    let device = 1 + u32::try_from(devices.len()).expect("few");
    devices.push(v1::PciDevice {
        address: Some(address(device)),
        io_thread: thread.to_owned(),
        kind: Some(kind),
    });
}

fn rng() -> v1::pci_device::Kind {
    v1::pci_device::Kind::Rng(v1::VirtioRng::default())
}

#[allow(
    clippy::needless_update,
    reason = "a NIC may get more settings than a test names"
)]
fn nic(tap_fd: u32) -> v1::pci_device::Kind {
    v1::pci_device::Kind::Net(v1::VirtioNet {
        tap_fd,
        mac: vec![0x52, 0x54, 0, 0, 0, 7],
        mtu: 1500,
        ..v1::VirtioNet::default()
    })
}

fn address(device: u32) -> v1::PciAddress {
    v1::PciAddress {
        device,
        ..v1::PciAddress::default()
    }
}

/// `testguest` with such a command line.
fn guest(command_line: &str) -> ByHand {
    let elf = testguest::elf().expect("checked before");
    let mut by_hand = ByHand::new(File::open(elf).expect("the guest"));
    let boot = by_hand.config.kernel.as_mut().expect("a kernel");
    boot.cmdline = command_line.to_owned();
    by_hand
}

/// How often the guest has done its tests so far; none may have failed.
fn runs(by_hand: &ByHand) -> usize {
    let printed = by_hand.printed();
    let done: Vec<&str> = printed
        .split_inclusive('\n')
        .filter(|line| line.starts_with("TESTGUEST done") && line.ends_with('\n'))
        .collect();
    assert!(
        done.iter().all(|line| line.contains("failed=0 skipped=0")),
        "{printed}"
    );
    done.len()
}

fn has_ring(pid: u32) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors");
    descriptors
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .any(|target| target.to_string_lossy().contains("io_uring"))
}

#[test]
fn devices_work_and_are_reset_changed_and_saved_within_the_sandbox() {
    skip_if!(without_guest().or_else(without_network));
    let mut by_hand = guest("net_frames=4 then=idle");
    let disks = [disk(), disk()];
    let tap = network();
    add_disk(&mut by_hand, 4, v1::DiskIo::Unspecified, "");
    add_disk(&mut by_hand, 5, v1::DiskIo::Threads, "own");
    add(&mut by_hand, rng(), "");
    add(&mut by_hand, nic(6), "");

    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    let more = [disks[0].as_fd(), disks[1].as_fd(), tap.as_fd()];
    by_hand.boot_with(&mut client, &more);
    // Before a driver has found the disk: threads that meet the guest make no rings.
    assert!(has_ring(vmm.pid()));
    soon(|| runs(&by_hand) == 1);
    disks[0].set_len(2 * DISK_BYTES).unwrap();
    let grow = v1::ResizeDisk {
        disk: Some(address(1)),
    };
    client.must(Kind::ResizeDisk(grow)).unwrap();
    for device in [1, 2] {
        client.must(slow_down(device)).unwrap();
    }
    client.must(Kind::Reset(v1::Reset {})).unwrap();
    soon(|| runs(&by_hand) == 2);
    client.must(Kind::Pause(v1::Pause {})).unwrap();
    let file = tempfile::tempfile().unwrap();
    let saved = client
        .request(Kind::Save(v1::Save {}), &[file.as_fd()])
        .unwrap();
    assert_eq!(saved.error, None);
    client.must(Kind::Resume(v1::Resume {})).unwrap();
    client.must(Kind::PowerButton(v1::PowerButton {})).unwrap();
    client.must(Kind::Stop(v1::Stop::default())).unwrap();
    let exit = client.wait_for_exit().unwrap();
    assert_eq!(exit.reason(), v1::ExitReason::Stopped);
}

/// Limits a disk to a MiB a second.
fn slow_down(device: u32) -> Kind {
    let limit = v1::RateLimit {
        per_second: 1 << 20,
        burst: 1 << 16,
    };
    Kind::SetDiskLimits(v1::SetDiskLimits {
        disk: Some(address(device)),
        limits: Some(v1::DiskLimits {
            total_bytes: Some(limit),
            ..v1::DiskLimits::default()
        }),
    })
}

/// What a container's default filter refuses, and io_uring, which some refuse as well.
fn filter_of_a_pod() {
    let refused = [
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_ptrace,
        libc::SYS_bpf,
        libc::SYS_userfaultfd,
        libc::SYS_perf_event_open,
    ];
    let filter = SeccompFilter::new(
        refused.into_iter().map(|call| (call, Vec::new())).collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM.unsigned_abs()),
        TargetArch::x86_64,
    );
    let program: BpfProgram = filter.and_then(TryInto::try_into).expect("a filter");
    apply_filter(&program).expect("filters");
}

/// The program where everybody can read it.
fn readable_program(directory: &tempfile::TempDir) -> PathBuf {
    let everybody = fs::Permissions::from_mode(0o755);
    fs::set_permissions(directory.path(), everybody).expect("set");
    let copy = directory.path().join("kvmlet-vmm");
    fs::copy(
        artifacts::program("kvmlet-vmm").expect("it is built"),
        &copy,
    )
    .expect("copied");
    copy
}

/// As in a pod of the `restricted` profile that is given /dev/kvm: a user that is not root, no
/// capabilities, no namespaces to be had, and a filter that refuses io_uring besides.
#[test]
fn without_privileges_and_io_uring_a_guest_has_its_disk_all_the_same() {
    skip_if!(without_guest().or_else(only_root));
    let directory = tempfile::tempdir().unwrap();
    let program = readable_program(&directory);
    // The filter is of the thread that starts the process, and of what it starts.
    let vmm = std::thread::spawn(move || {
        filter_of_a_pod();
        VmmProcess::start_as(&program, |command| {
            command.uid(NOBODY).gid(NOBODY);
        })
    });
    let mut vmm = vmm.join().unwrap().unwrap();
    let mut client = vmm.connect().unwrap();
    // The files of a process that is not dumpable are root's.
    let files = fs::metadata(format!("/proc/{}/fd", vmm.pid())).unwrap();
    assert_eq!(files.uid(), 0);
    for (name, status) in threads(vmm.pid()) {
        let ids = field(&status, "Uid:");
        assert!(
            ids.split_whitespace().all(|id| id == NOBODY.to_string()),
            "{name}: {ids}"
        );
    }

    let mut by_hand = guest("tests=blk,rng then=idle");
    let image = disk();
    add_disk(&mut by_hand, 4, v1::DiskIo::Unspecified, "");
    add(&mut by_hand, rng(), "");
    by_hand.boot_with(&mut client, &[image.as_fd()]);
    soon(|| runs(&by_hand) == 1);
    assert!(!has_ring(vmm.pid()));
    client.must(Kind::Stop(v1::Stop::default())).unwrap();
    client.wait_for_exit().unwrap();
    assert!(vmm.wait().unwrap().success());
}

#[test]
fn a_vmm_that_was_stopped_and_continued_goes_on() {
    skip_if!(without_kvm());
    let by_hand = ByHand::new(kernel(&[print("up"), halt()]));
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    by_hand.boot(&mut client);
    soon(|| by_hand.printed() == "up");
    let pid = nix::unistd::Pid::from_raw(i32::try_from(vmm.pid()).unwrap());
    for signal in [Signal::SIGSTOP, Signal::SIGCONT] {
        kill(pid, signal).unwrap();
    }
    client.must(Kind::Pause(v1::Pause {})).unwrap();
    client.must(Kind::Resume(v1::Resume {})).unwrap();
    client.must(Kind::Stop(v1::Stop::default())).unwrap();
    let exit = client.wait_for_exit().unwrap();
    assert_eq!(exit.reason(), v1::ExitReason::Stopped);
}
