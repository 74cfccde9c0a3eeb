//! NICs: offloads, several queues, link, limits, and hostile headers.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tun_rs::{DeviceBuilder, Layer};
use vmm_devices::virtio::net::{NetConfig, NetLimits};
use vmm_devices::virtio::rate::RateLimit;
use vmm_machine::{NetChange, NicConfig};

use super::*;

/// A crowded machine gives the guest little time between two moves; after so many it has its own.
const MOST_MOVES: u64 = 200;

/// Hosts with vhost-net have it.
const VHOST: &str = "/dev/vhost-net";

pub(super) const MAC: [u8; 6] = [0x52, 0x54, 0, 0, 0, 7];

/// A bridge in a network of this thread's own, with a tap for a NIC on it and a peer that echoes
/// frames.
pub(super) struct Network {
    queues: Vec<tun_rs::SyncDevice>,
    /// Frames that the peer got from the guest.
    echoed: Arc<AtomicU64>,
}

impl Network {
    /// With so many queues of the NIC's tap.
    pub(super) fn new(queues: usize) -> Self {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("a network of our own");
        ip(&["link", "add", BRIDGE, "type", "bridge"]);
        ip(&["link", "set", BRIDGE, "up"]);
        let echoed = Arc::new(AtomicU64::new(0));
        let peer = bridge_port("peer", false, false);
        let count = Arc::clone(&echoed);
        std::thread::spawn(move || {
            let mut frame = [0; 2048];
            while let Ok(bytes) = peer.recv(&mut frame) {
                // The host's own frames are on the bridge, too.
                if bytes > 14 && frame[12..14] == [0x88, 0xb5] {
                    count.fetch_add(1, Ordering::SeqCst);
                    testguest::make_echo(&mut frame[..bytes]);
                    peer.send(&frame[..bytes]).expect("the peer's tap");
                }
            }
        });
        let first = bridge_port("nic", true, queues > 1);
        let more = (1..queues).map(|_| first.try_clone().expect("a queue"));
        let mut queues: Vec<_> = more.collect();
        queues.insert(0, first);
        Self { queues, echoed }
    }

    /// A NIC on it.
    pub(super) fn nic(&self, config: NetConfig) -> DeviceConfig {
        self.nic_with(config, Vec::new())
    }

    /// A NIC on it whose frames the host's kernel moves.
    pub(super) fn nic_of_vhost(&self, config: NetConfig) -> DeviceConfig {
        let open = || File::options().read(true).write(true).open(VHOST);
        let vhost = open().expect("vhost-net, which was there");
        self.nic_with(config, vec![vhost.into()])
    }

    fn nic_with(&self, config: NetConfig, vhost: Vec<OwnedFd>) -> DeviceConfig {
        let copy = |queue: &tun_rs::SyncDevice| {
            let descriptor = queue.as_fd().try_clone_to_owned();
            descriptor.expect("a descriptor")
        };
        DeviceConfig::Net(NicConfig {
            taps: self.queues.iter().map(copy).collect(),
            vhost,
            config,
            acpi_index: None,
        })
    }

    fn echoed(&self) -> u64 {
        self.echoed.load(Ordering::SeqCst)
    }
}

/// A port of the bridge; with `offload` as a VMM wants it.
fn bridge_port(name: &str, offload: bool, multi_queue: bool) -> tun_rs::SyncDevice {
    let device = DeviceBuilder::new()
        .name(name)
        .layer(Layer::L2)
        .packet_information(false)
        .offload(offload)
        .multi_queue(multi_queue)
        .build_sync()
        .expect("a tap");
    ip(&["link", "set", name, "master", BRIDGE, "up"]);
    device
}

pub(super) fn config() -> NetConfig {
    NetConfig {
        mac: MAC,
        mtu: 1500,
        ..NetConfig::default()
    }
}

fn boot(network: &Network, config: NetConfig, words: &str) -> Machine {
    let command_line = format!("tests=net {words}");
    let devices = vec![network.nic(config)];
    Machine::boot(&command_line, KernelEntry::Default, devices)
}

/// Changes the NIC of a machine that has no other device.
fn change(machine: &Machine, change: NetChange) {
    let nic = PciAddress::new(0, 1).expect("a slot");
    machine
        .handle
        .request(9, Request::ChangeNic { nic, change });
}

/// Waits until the guest says that it waits for something.
fn wait_for(machine: &Machine, what: &str) {
    machine.wait_for(&format!("TESTGUEST waiting for={what}"));
}

fn assert_passed(machine: Machine) -> Results {
    let (status, results) = machine.ended();
    let done = results.one("done");
    assert_eq!(done, "passed=4 failed=0 skipped=0", "{results:#?}");
    assert_powered_off(&status, &results);
    results
}

#[test]
fn net_works_with_interrupts_and_by_polling() {
    skip_if!(without_machine().or_else(without_network));
    for mode in ["irq", "poll"] {
        let words = format!("mode={mode} net_frames=64");
        let results = assert_passed(boot(&Network::new(1), config(), &words));
        let line = results.one("net");
        assert!(line.contains("mac=52:54:00:00:00:07 frames=64"), "{line}");
        assert_eq!(results.number("net", "irqs") > 0, mode == "irq");
    }
}

#[test]
fn frames_are_merged_summed_and_filtered_and_hostile_headers_cost_their_frames_only() {
    skip_if!(without_machine().or_else(without_network));
    for mode in ["irq", "poll"] {
        let words =
            format!("mode={mode} net_frames=24 net_cases=merge,checksum,filter,hostile,echo");
        let results = assert_passed(boot(&Network::new(1), config(), &words));
        assert!(results.number("net", "merged") > 0, "{results:#?}");
    }
}

#[test]
fn pairs_of_queues_are_used_as_the_driver_says() {
    skip_if!(without_machine().or_else(without_network));
    for mode in ["irq", "poll"] {
        let words = format!("mode={mode} net_frames=32 net_cases=pairs,echo,filter");
        let results = assert_passed(boot(&Network::new(2), config(), &words));
        assert!(results.number("net", "frames") >= 128, "{results:#?}");
    }
}

#[test]
fn the_cable_is_pulled_and_put_back() {
    skip_if!(without_machine().or_else(without_network));
    let network = Network::new(1);
    let machine = boot(&network, config(), "net_cases=link");
    wait_for(&machine, "link-down");
    let before = network.echoed();
    assert_eq!(machine.handle.status().links_down, Some(Vec::new()));
    change(&machine, NetChange::SetLink { up: false });
    wait_for(&machine, "link-up");
    let down = machine.handle.status().links_down.unwrap_or_default();
    assert_eq!(down.len(), 1, "{down:?}");
    assert_eq!(network.echoed(), before, "a frame went out without a link");
    change(&machine, NetChange::SetLink { up: true });
    assert_passed(machine);
}

#[test]
fn the_guest_is_asked_to_announce_itself() {
    skip_if!(without_machine().or_else(without_network));
    let machine = boot(&Network::new(1), config(), "net_cases=announce");
    wait_for(&machine, "announce");
    change(&machine, NetChange::Announce);
    assert_passed(machine);
}

#[test]
fn limits_hold_frames_back_until_they_are_lifted() {
    skip_if!(without_machine().or_else(without_network));
    let network = Network::new(1);
    let limited = NetConfig {
        limits: NetLimits {
            transmit_frames: RateLimit {
                per_second: 1,
                burst: 5,
            },
            ..NetLimits::default()
        },
        ..config()
    };
    let begin = Instant::now();
    let machine = boot(&network, limited, "net_cases=burst");
    wait_for(&machine, "limits");
    // Time for frames to pass that must not.
    std::thread::sleep(Duration::from_millis(200));
    let (passed, elapsed) = (network.echoed(), begin.elapsed().as_secs());
    // Whatever the machine was busy with: more cannot have been earned. One passes on credit.
    assert!(passed <= 5 + elapsed + 2, "{passed} in {elapsed} s");
    change(&machine, NetChange::SetLimits(NetLimits::default()));
    machine.wait_until("all frames", |_| network.echoed() >= 32);
    assert_passed(machine);
}

#[test]
fn a_guest_moves_while_its_frames_fly() {
    skip_if!(without_machine().or_else(without_network));
    let network = Network::new(2);
    let command_line = "tests=net net_frames=60 net_cases=merge,pairs,filter";
    let devices = || vec![network.nic(config())];
    let mut machine = Machine::boot(command_line, KernelEntry::Default, devices());
    let mut moves = 0;
    let ended = loop {
        machine.wait_until_it_runs();
        if moves == MOST_MOVES {
            break machine;
        }
        // Any moment is a good one.
        std::thread::sleep(Duration::from_millis(moves % 13));
        match machine.moved(command_line, devices()) {
            Ok(next) => machine = next,
            Err(ended) => break ended,
        }
        moves += 1;
    };
    let (_, results) = ended.ended();
    let done = results.one("done");
    assert_eq!(
        done, "passed=4 failed=0 skipped=0",
        "after {moves} moves: {results:#?}"
    );
    println!("moved {moves} times");
    assert!(moves > 3, "the guest ended before it was moved");
}
