mod addresses;

use std::fs::File;
use std::io::{Read, Write};
use std::process::Command;
use std::time::{Duration, Instant};

use super::*;
use crate::pod::chains::refused_of;
use crate::taps::{self, TapSpec};
use crate::test_namespace::in_a_namespace;

const PATIENCE: Duration = Duration::from_secs(20);

const EVERYBODY: [u8; 6] = [0xff; 6];
const LIAR: [u8; 6] = [2, 0, 0, 0, 0, 7];
const NEIGHBOUR: [u8; 6] = [2, 0, 0, 0, 0, 8];

/// In each frame of the test, at its end.
const MARK: &[u8] = b"a frame of the test";

/// A guest's tap, as its VMM has it.
struct Guest {
    tap: File,
    nic: Nic,
}

impl Guest {
    async fn new(name: &str, mac: [u8; 6]) -> Self {
        let spec = TapSpec {
            name,
            network: "lan",
            bridge: "br0",
            guest_mac: mac,
            queues: 1,
        };
        let mut attached = taps::create(&spec).await.unwrap();
        let tap = File::from(attached.queues.remove(0));
        rustix::io::ioctl_fionbio(&tap, true).unwrap();
        let tap_name = name.to_owned();
        Self {
            tap,
            nic: Nic {
                tap: tap_name,
                mac,
                addresses: Vec::new(),
            },
        }
    }

    /// Sends a frame behind the header of a tap, once the bridge's port is ready.
    fn send(&mut self, frame: &[u8]) {
        let whole = [&[0; 10][..], frame, MARK].concat();
        let start = Instant::now();
        while let Err(error) = self.tap.write_all(&whole) {
            assert!(start.elapsed() < PATIENCE, "{error}");
            // Nothing reports that the bridge's port is ready.
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Frames of the test that came until now.
    fn received(&mut self) -> usize {
        let mut frame = vec![0; 70_000];
        let mut count = 0;
        while let Ok(length) = self.tap.read(&mut frame) {
            count += usize::from(frame[..length].ends_with(MARK));
        }
        count
    }
}

fn ethernet(from: [u8; 6], kind: &[u8], rest: &[u8]) -> Vec<u8> {
    [&EVERYBODY[..], &from, kind, rest].concat()
}

/// A question by ARP (RFC 826) from an address that nobody judges.
fn arp(mac: [u8; 6]) -> Vec<u8> {
    let head = [0, 1, 8, 0, 6, 4, 0, 1];
    [&head[..], &mac, &[192, 0, 2, 7], &[0; 6], &[192, 0, 2, 8]].concat()
}

fn udp(source: u16) -> Vec<u8> {
    [source, 5000, 8, 0].map(u16::to_be_bytes).concat()
}

fn ipv4(rest: &[u8]) -> Vec<u8> {
    let header = [
        0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 7, 255, 255, 255, 255,
    ];
    [&header[..], rest].concat()
}

fn ipv6(protocol: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len() + MARK.len())
        .unwrap()
        .to_be_bytes();
    let from = [&[0xfe, 0x80][..], &[0; 13], &[7]].concat();
    let to = [&[0xff, 0x02][..], &[0; 13], &[1]].concat();
    [
        &[0x60, 0, 0, 0][..],
        &length,
        &[protocol, 255],
        &from,
        &to,
        rest,
    ]
    .concat()
}

const TYPE4: [u8; 2] = [8, 0];
const TYPE6: [u8; 2] = [0x86, 0xdd];
const TYPE_ARP: [u8; 2] = [8, 6];

/// The first fragment of a packet, and the first byte of what is in it.
fn first_of(next: u8, kind: u8) -> Vec<u8> {
    ipv6(44, &[next, 0, 0, 1, 0, 0, 0, 9, kind, 0, 1, 4, 0, 0, 0, 0])
}

fn forged() -> Vec<(&'static str, Vec<u8>)> {
    let message = |kind: u8| ipv6(58, &[&[kind, 0, 0, 0, 0, 0, 0, 0][..], &[0; 16]].concat());
    let first = |next: u8| first_of(next, 60);
    // What follows is no part of the packet, but of the frame.
    let without = |next: u8| {
        let mut short = ipv6(44, &[next, 0, 0, 1, 0, 0, 0, 9, 128]);
        short[4..6].copy_from_slice(&[0, 8]);
        short
    };
    // To a group of links, in an honest frame otherwise.
    let to_group = |last: u8, kind: [u8; 2], rest: &[u8]| {
        let group = [0x01, 0x80, 0xc2, 0, 0, last];
        [&group[..], &LIAR, &kind, rest].concat()
    };
    let spanning_tree = [&[0x42, 0x42, 3][..], &[0; 35]].concat();
    let tagged = |kind: [u8; 2]| [&kind[..], &[0, 5], &TYPE_ARP].concat();
    vec![
        (
            "another's NIC",
            ethernet(NEIGHBOUR, &TYPE4, &ipv4(&udp(5000))),
        ),
        (
            "ARP in another's frame",
            ethernet(NEIGHBOUR, &TYPE_ARP, &arp(LIAR)),
        ),
        (
            "ARP of another's NIC",
            ethernet(LIAR, &TYPE_ARP, &arp(NEIGHBOUR)),
        ),
        ("an offer of DHCP", ethernet(LIAR, &TYPE4, &ipv4(&udp(67)))),
        (
            "one of DHCPv6",
            ethernet(LIAR, &TYPE6, &ipv6(17, &udp(547))),
        ),
        ("a router", ethernet(LIAR, &TYPE6, &message(134))),
        ("a redirection", ethernet(LIAR, &TYPE6, &message(137))),
        (
            "a router in fragments",
            ethernet(LIAR, &TYPE6, &first_of(58, 134)),
        ),
        (
            "a neighbour in fragments",
            ethernet(LIAR, &TYPE6, &first_of(58, 136)),
        ),
        (
            "a message of which nothing is there",
            ethernet(LIAR, &TYPE6, &without(58)),
        ),
        ("options in fragments", ethernet(LIAR, &TYPE6, &first(60))),
        (
            "a server in fragments",
            ethernet(LIAR, &TYPE6, &without(17)),
        ),
        ("a VLAN", ethernet(LIAR, &tagged([0x81, 0]), &arp(LIAR))),
        (
            "a provider's VLAN",
            ethernet(LIAR, &tagged([0x88, 0xa8]), &arp(LIAR)),
        ),
        ("a spanning tree", to_group(0, [0, 57], &spanning_tree)),
        ("link aggregation", to_group(2, [0x88, 0x09], &[0; 50])),
        ("a log-in at a port", to_group(3, [0x88, 0x8e], &[0; 50])),
        ("LLDP", to_group(0x0e, [0x88, 0xcc], &[0; 50])),
    ]
}

fn dropped() -> u64 {
    let rules = node("nft list table bridge kvmlet-networks");
    // Of the rules, which say what is done, and not of the set.
    let counts = rules.lines().filter(|line| line.contains("jump refuse"));
    counts
        .filter_map(|line| line.split("counter packets ").nth(1))
        .map(|rest| rest.split(' ').next().unwrap().parse::<u64>().unwrap())
        .sum()
}

fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        // Frames and the kernel's counters are looked at: nothing reports them.
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn node(command: &str) -> String {
    let output = Command::new("sh").args(["-c", command]).output().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

fn make_bridge() {
    node("ip link add br0 type bridge && ip link set br0 up");
    // The kernel is not to put fragments together on their way.
    node("for name in /proc/sys/net/bridge/bridge-nf-call-*; do echo 0 >$name; done");
}

#[test]
fn a_guest_on_a_bridge_of_the_configuration_sends_from_its_own_nic_and_serves_no_addresses() {
    in_a_namespace(async || {
        // Nothing is made for guests that there are not.
        restore(&[]).unwrap();
        assert!(!node("nft list tables").contains("kvmlet-networks"));
        make_bridge();
        let mut liar = Guest::new("kv0000000007n0", LIAR).await;
        let mut neighbour = Guest::new("kv0000000008n0", NEIGHBOUR).await;
        restore(std::slice::from_ref(&neighbour.nic)).unwrap();
        show_all_frames(std::slice::from_ref(&liar.nic))
            .await
            .unwrap();
        change(std::slice::from_ref(&liar.nic), true).unwrap();
        let honest = ethernet(LIAR, &TYPE_ARP, &arp(LIAR));
        wait("what is honest comes through", || {
            liar.send(&honest);
            neighbour.received() > 0
        });
        for (what, frame) in forged() {
            let before = dropped();
            liar.send(&frame);
            wait(what, || dropped() > before);
            assert_eq!(neighbour.received(), 0, "{what}");
        }
        // It is known who did it.
        let netfilter = Netfilter::open().unwrap();
        let refused = |tap: &str| refused_of(&netfilter, TABLE, tap).unwrap();
        assert_eq!(refused(&liar.nic.tap), Some(dropped()));
        assert_eq!(refused(&neighbour.nic.tap), Some(0));
        assert_eq!(refused("nobody"), None);
        // Addresses are somebody else's to judge, and later fragments follow their first.
        for frame in [
            ipv6(17, &udp(5000)),
            first_of(58, 128),
            ipv6(44, &[17, 0, 0, 9, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0]),
        ] {
            liar.send(&ethernet(LIAR, &TYPE6, &frame));
            wait("what is honest", || neighbour.received() > 0);
        }
        // Of those that are no guests' nothing is judged.
        change(std::slice::from_ref(&liar.nic), false).unwrap();
        liar.send(&ethernet(NEIGHBOUR, &TYPE_ARP, &arp(NEIGHBOUR)));
        wait("another's tap", || neighbour.received() > 0);
        // An agent that starts anew fills in who runs.
        restore(&[liar.nic.clone(), neighbour.nic.clone()]).unwrap();
        let before = dropped();
        liar.send(&ethernet(NEIGHBOUR, &TYPE_ARP, &arp(NEIGHBOUR)));
        wait("the walls again", || dropped() > before);
    });
}

#[test]
fn a_note_of_nics_is_read_as_it_was_written_and_none_is_no_nics() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(read(dir.path()).unwrap(), []);
    let nics = [Nic {
        tap: "kv0000000007n0".to_owned(),
        mac: LIAR,
        addresses: vec!["192.0.2.7".parse().unwrap()],
    }];
    write(dir.path(), &nics).unwrap();
    assert_eq!(read(dir.path()).unwrap(), nics);
}
