//! A guest that attacks its devices, in a VMM with its own filter of system calls: whatever it does, the
//! VMM answers, grows no more than it should, rests when its guest rests, and every device serves
//! again. The cases are the guest's: `guest-images/testguest/src/attack/`, `docs/hostile-guest.md`.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use integration::skip::without_kvm;
use integration::testguest::{self, Results};
use integration::vmm_client::{VmmClient, VmmProcess};
use integration::{artifacts, skip_if, tools};
use proto_vmm::v1::pci_device::Kind as Device;
use proto_vmm::v1::{self, request::Kind};
use tun_rs::{DeviceBuilder, Layer};

use crate::by_hand::ByHand;
use crate::footprint::Footprint;

/// All cases of a device take a few seconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(300);
/// Cases that every virtio device has.
const COMMON_CASES: usize = 110;
/// What an attacked VMM may have more than one whose guest was honest: allocations that a device
/// keeps for its largest requests.
const MORE_ANONYMOUS_KIB: u64 = 2 << 10;
/// A VMM whose guest sleeps is looked at for so long, and may use so much of a CPU: it answers
/// questions, and a tick is 10 ms.
const REST: Duration = Duration::from_millis(400);
const MOST_TICKS_AT_REST: u64 = 4;

/// A machine with a disk, a source of entropy and the device of the test, and their descriptors.
struct Plan {
    by_hand: ByHand,
    more: Vec<OwnedFd>,
}

impl Plan {
    fn new(command_line: &str) -> Self {
        let elf = testguest::elf().expect("checked before");
        let mut by_hand = ByHand::new(File::open(elf).expect("the guest"));
        if let Some(kernel) = &mut by_hand.config.kernel {
            command_line.clone_into(&mut kernel.cmdline);
        }
        // The second attacks what the first has in flight.
        if let Some(cpus) = &mut by_hand.config.cpus {
            (cpus.count, cpus.cores) = (2, 2);
        }
        let mut plan = Self {
            by_hand,
            more: Vec::new(),
        };
        // Not in memory, where it would have no ring. A node of busybox has nothing but memory, and no such directory.
        std::fs::create_dir_all("/var/tmp").expect("a directory");
        let disk = tempfile::tempfile_in("/var/tmp").expect("a file");
        disk.set_len(2 << 20).expect("a disk");
        let blk = v1::VirtioBlk {
            disk_fd: plan.descriptor(disk),
            queues: 2,
            discard: true,
            ..v1::VirtioBlk::default()
        };
        plan.add(Device::Blk(blk));
        plan.add(Device::Rng(v1::VirtioRng {}));
        plan
    }

    fn descriptor(&mut self, descriptor: impl Into<OwnedFd>) -> u32 {
        self.more.push(descriptor.into());
        let others = self.by_hand.descriptors().len();
        u32::try_from(others + self.more.len() - 1).expect("few")
    }

    fn add(&mut self, kind: Device) {
        let device = u8::try_from(self.by_hand.config.devices.len() + 1).expect("few");
        self.add_at(0, device, kind);
    }

    fn add_at(&mut self, bus: u8, device: u8, kind: Device) {
        let place = v1::PciDevice::at(bus, device, kind);
        self.by_hand.config.devices.push(place);
    }

    fn boot(&self, client: &mut VmmClient) {
        let more: Vec<BorrowedFd<'_>> = self.more.iter().map(AsFd::as_fd).collect();
        self.by_hand.boot_with(client, &more);
    }

    /// Waits for a line of the guest, asking the VMM for its state all the while.
    fn wait_for(&self, line: &str, client: &mut VmmClient) {
        let deadline = Instant::now() + PATIENCE;
        while !self.by_hand.printed().contains(line) {
            let printed = || self.by_hand.printed();
            assert!(Instant::now() < deadline, "no {line}:\n{}", printed());
            let answer = client.must(Kind::GetStatus(v1::GetStatus {}));
            let status = answer.expect("an answer").status.expect("a status");
            assert_eq!(status.exit, None, "{}", printed());
            // The log is a file, and nothing signals its next line. Requests without a pause would load the VMM
            // more than the guest does.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Runs the cases of `attack` on a machine that `add` gives a device, and compares the VMM with one
/// whose guest only tests its devices.
fn attack(attack: &str, least_cases: usize, add: impl Fn(&mut Plan)) {
    attack_on(false, attack, least_cases, add);
}

/// The same; where configuration space is `mapped` the guest reads it without coming out.
fn attack_on(mapped: bool, attack: &str, least_cases: usize, add: impl Fn(&mut Plan)) {
    let add = |plan: &mut Plan| {
        if let Some(kernel) = &mut plan.by_hand.config.kernel {
            kernel.memory_mapped_pci = mapped;
        }
        add(plan);
    };
    let honest = footprint_of("tests=blk,rng then=idle", add).1;
    let command_line = format!("tests=none attack={attack} then=idle");
    let (results, attacked) = footprint_of(&command_line, add);

    let cases = results.of("attack");
    let wrong: Vec<_> = cases.iter().filter(|line| line.contains("FAIL")).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(results.one("done").contains("failed=0"), "{results:#?}");
    assert!(cases.len() >= least_cases, "{}", cases.len());
    assert_documented(&cases, attack.contains("vhost"));

    println!(
        "{attack}: {} cases, {attacked:?} after {honest:?}",
        cases.len()
    );
    assert!(attacked.threads <= honest.threads, "{attacked:?}");
    assert!(attacked.descriptors <= honest.descriptors, "{attacked:?}");
    let most = honest.anonymous_kib + MORE_ANONYMOUS_KIB;
    assert!(
        attacked.anonymous_kib <= most,
        "{attacked:?} after {honest:?}"
    );
}

fn footprint_of(command_line: &str, add: impl Fn(&mut Plan)) -> (Results, Footprint) {
    let mut plan = Plan::new(command_line);
    add(&mut plan);
    let vmm = VmmProcess::start().expect("a VMM");
    let mut client = vmm.connect().expect("connected");
    plan.boot(&mut client);
    plan.wait_for("TESTGUEST idle", &mut client);
    let before = Footprint::of(vmm.pid());
    // The interval of the measurement.
    std::thread::sleep(REST);
    let after = Footprint::of(vmm.pid());
    let ticks = after.ticks - before.ticks;
    assert!(ticks <= MOST_TICKS_AT_REST, "{ticks} ticks in {REST:?}");

    // It still answers requests.
    client.must(Kind::Pause(v1::Pause {})).expect("paused");
    client.must(Kind::Resume(v1::Resume {})).expect("resumed");
    let reason = "enough".to_owned();
    client
        .must(Kind::Stop(v1::Stop { reason }))
        .expect("stopped");
    let exit = client.wait_for_exit().expect("an end");
    assert_eq!(exit.reason(), v1::ExitReason::Stopped);
    (Results::of_console(&plan.by_hand.printed()), after)
}

/// Every case has a row in the page that says what is promised.
/// The page has a section of its own for what differs where the kernel moves a NIC's frames.
fn assert_documented(cases: &[&str], vhost: bool) {
    // A node has the page alone.
    let page = std::env::var_os("KVMLET_HOSTILE_GUEST").map_or_else(
        || {
            let clone = artifacts::workspace().expect("a clone");
            clone.join("docs/hostile-guest.md")
        },
        PathBuf::from,
    );
    let page = std::fs::read_to_string(page).expect("the page");
    let (before, rest) = page.split_once("### vhost-net\n").expect("a section");
    let (differs, after) = rest.split_once("\n### ").expect("another section");
    let mut wrong = Vec::new();
    for line in cases {
        let mut words = line.split(' ').skip(1);
        // A root port is named by its place, which has colons.
        let case = words.next().and_then(|case| case.strip_suffix(':'));
        let (case, outcome) = case.zip(words.next()).expect("a case and its outcome");
        let row = format!("| `{case}` | ");
        // Several kinds of devices may have a case of this name.
        let texts = if vhost && differs.contains(&row) {
            [differs, ""]
        } else {
            [before, after]
        };
        let mut promises = texts
            .iter()
            .flat_map(|text| text.lines().filter_map(|line| line.strip_prefix(&row)));
        if !promises.any(|promise| is_promised(promise, outcome)) {
            wrong.push(*line);
        }
    }
    assert!(wrong.is_empty(), "not as the page has it: {wrong:#?}");
}

/// Whether an outcome, as the guest has it, is among those of a row of the page.
fn is_promised(promise: &str, outcome: &str) -> bool {
    let words: &[&str] = match outcome {
        "needs-reset" => &["needs a reset"],
        "answered" => &["answered"],
        // Of bridges and chips: what they did left nothing behind.
        "ignored" => &["ignored", "works again", "has not run out"],
        "status-1" => &["an error status"],
        "status-2" => &["\"not supported\""],
        _ => &[],
    };
    words.iter().any(|words| promise.contains(words)) || promise.starts_with("any of the outcomes")
}

fn without_machine() -> Option<String> {
    without_kvm().or_else(testguest::missing)
}

#[test]
fn a_disk_survives_its_guest() {
    skip_if!(without_machine());
    attack("blk", COMMON_CASES + 16, |_| {});
}

#[test]
fn a_source_of_entropy_survives_its_guest() {
    skip_if!(without_machine());
    for mapped in [false, true] {
        attack_on(mapped, "rng", COMMON_CASES + 7, |_| {});
    }
}

fn without_network() -> Option<String> {
    let missing = !nix::unistd::geteuid().is_root() || !tools::is_there("ip");
    missing.then(|| "a network of its own needs root and iproute2".to_owned())
}

/// A NIC on a tap of its own; `vhost` is `/dev/vhost-net` where the kernel is to move its frames.
fn add_nic(plan: &mut Plan, vhost: Option<File>) {
    let tap = DeviceBuilder::new()
        .layer(Layer::L2)
        .packet_information(false)
        .offload(true)
        .build_sync()
        .expect("a tap");
    let net = v1::VirtioNet {
        tap_fd: plan.descriptor(tap.as_fd().try_clone_to_owned().expect("a descriptor")),
        vhost_fds: vhost.into_iter().map(|it| plan.descriptor(it)).collect(),
        mac: vec![2, 0, 0, 0, 0, 1],
        mtu: 1500,
        ..v1::VirtioNet::default()
    };
    plan.add(Device::Net(net));
}

#[test]
fn a_network_device_survives_its_guest() {
    skip_if!(without_machine().or_else(without_network));
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("a network of our own");
    attack("net", COMMON_CASES + 13, |plan| add_nic(plan, None));
}

/// The kernel reads the rings that the guest breaks, and the VMM is notified by an event.
#[test]
#[ignore = "needs vhost-net: `in_a_node` runs it where that is"]
fn a_network_device_of_vhost_survives_its_guest() {
    skip_if!(without_machine().or_else(without_network));
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("a network of our own");
    attack("net,vhost", COMMON_CASES + 13, |plan| {
        let vhost = File::options()
            .read(true)
            .write(true)
            .open("/dev/vhost-net");
        add_nic(plan, Some(vhost.expect("vhost-net")));
    });
}

#[test]
fn a_console_survives_its_guest() {
    skip_if!(without_machine());
    attack("console", COMMON_CASES + 8, |plan| {
        let console = v1::VirtioConsolePort {
            is_console: true,
            ..v1::VirtioConsolePort::default()
        };
        let agent = v1::VirtioConsolePort {
            name: "org.qemu.guest_agent.0".to_owned(),
            ..v1::VirtioConsolePort::default()
        };
        plan.add(Device::Console(v1::VirtioConsole {
            ports: vec![console, agent],
            ..v1::VirtioConsole::default()
        }));
    });
}

#[test]
fn a_socket_device_survives_its_guest() {
    skip_if!(without_machine());
    attack("vsock", COMMON_CASES + 8, |plan| {
        plan.add(Device::Vsock(v1::VirtioVsock {
            guest_cid: 5,
            ..v1::VirtioVsock::default()
        }));
    });
}

#[test]
fn a_balloon_survives_its_guest() {
    skip_if!(without_machine());
    attack("balloon", COMMON_CASES + 11, |plan| {
        plan.add(Device::Balloon(v1::VirtioBalloon {
            free_page_reporting: true,
            stats_interval_ms: 5,
            ..v1::VirtioBalloon::default()
        }));
    });
}

#[test]
fn the_chips_survive_their_guest() {
    skip_if!(without_machine());
    for mapped in [false, true] {
        attack_on(mapped, "chips", 14 + 7, |plan| {
            plan.add(Device::I6300esb(v1::I6300Esb::default()));
            plan.add(Device::Pvpanic(v1::Pvpanic {}));
        });
    }
}

#[test]
fn root_ports_survive_their_guest() {
    skip_if!(without_machine());
    for mapped in [false, true] {
        attack_on(mapped, "bridges", 3 * 9, |plan| {
            for secondary_bus in [1, 2, 0x80] {
                plan.add(Device::RootPort(v1::RootPort { secondary_bus }));
            }
            // The last port's slot is empty.
            for bus in [1, 2] {
                plan.add_at(bus, 0, Device::Rng(v1::VirtioRng {}));
            }
        });
    }
}

/// How often a machine under attack by two CPUs is paused.
const PAUSES: u32 = 20;

#[test]
fn a_machine_under_attack_by_two_cpus_is_paused_resumed_and_stopped() {
    skip_if!(without_machine());
    let mut plan = Plan::new("tests=none then=storm");
    plan.add(Device::Console(v1::VirtioConsole {
        ports: vec![v1::VirtioConsolePort {
            is_console: true,
            ..v1::VirtioConsolePort::default()
        }],
        ..v1::VirtioConsole::default()
    }));
    plan.add(Device::Vsock(v1::VirtioVsock {
        guest_cid: 5,
        ..v1::VirtioVsock::default()
    }));
    plan.add(Device::Balloon(v1::VirtioBalloon::default()));
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    plan.boot(&mut client);
    plan.wait_for("TESTGUEST storm", &mut client);

    // The client waits for no answer longer than it should take.
    let mut must = |kind: Kind| {
        let answer = client.must(kind).expect("an answer");
        assert_eq!(answer.status.and_then(|status| status.exit), None);
    };
    let before = Footprint::of(vmm.pid()).ticks;
    for round in 0..PAUSES {
        // Not a wait: the pause has to hit another phase of the storm in each round.
        std::thread::sleep(Duration::from_millis(u64::from(round) * 17));
        must(Kind::Pause(v1::Pause {}));
        must(Kind::Resume(v1::Resume {}));
    }
    let ticks = Footprint::of(vmm.pid()).ticks - before;
    assert!(ticks > u64::from(PAUSES), "{ticks} ticks: no storm");
    let reason = "enough".to_owned();
    must(Kind::Stop(v1::Stop { reason }));
    let exit = client.wait_for_exit().unwrap();
    assert_eq!(exit.reason(), v1::ExitReason::Stopped, "{exit:?}");
    assert_eq!(exit.detail, "enough");
}

#[test]
fn instructions_from_registers_end_the_guest_with_a_reason() {
    skip_if!(without_machine());
    let plan = Plan::new("tests=none attack=execute");
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    plan.boot(&mut client);
    let exit = client.wait_for_exit().unwrap();
    let ends = [v1::ExitReason::KvmError, v1::ExitReason::TripleFault];
    assert!(ends.contains(&exit.reason()), "{exit:?}");
    println!("{:?}: {}", exit.reason(), exit.detail);
}
