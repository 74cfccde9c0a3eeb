//! A guest that lies: raw frames in the place of a bridged guest's, each of which is dropped at the node's end of its veth
//! and counted, and a neighbour that notices nothing.

use std::time::{Duration, Instant};

use super::*;
use crate::netfilter::Netfilter;
use crate::pod::chains::{TABLE, refused_of};

const ARP: [u8; 2] = [0x08, 0x06];
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const EVERYBODY: [u8; 6] = [0xff; 6];
const ALL_NODES: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];

/// In each frame that a guest sends, behind what its headers speak of.
const MARK: &[u8] = b"a frame of the test";

/// How long the kernel may take to pass a frame on.
const PATIENCE: Duration = Duration::from_secs(20);

/// A bridged guest, as its VMM sees it.
struct Liar {
    mac: [u8; 6],
    plan: PodPlan,
    tap: File,
    _vmm: Elsewhere,
}

impl Liar {
    async fn new(last: u8) -> Self {
        let address = Ipv4Addr::new(10, 213, 0, last);
        let mac = [2, 0, 0, 0, 0, last];
        let plan = PodPlan {
            member: Member {
                veth: format!("kvp00000000{last:02x}"),
                mac,
                address,
                address6: Some(Ipv6Addr::from(u128::from(POOL6) | u128::from(last))),
            },
            v6: None,
            binding: PodBinding::Bridge,
            ..plan()
        };
        let vmm = Elsewhere::new();
        let namespace = Namespace::of(vmm.pid()).unwrap();
        let mut attached = attach(plan.clone(), namespace).await.unwrap();
        // A VMM that a guest has taken over, and that has rights in its namespace, passes on whatever it likes: without
        // this the bridge in the namespace keeps frames to groups of links to itself.
        vmm.run("ip link set dev tap0 type bridge_slave group_fwd_mask 0xfffd");
        // Nor does the kernel look into packets on their way over that bridge, put fragments together or cut off their ends.
        vmm.run("for name in /proc/sys/net/bridge/*; do echo 0 >$name; done");
        let tap = File::from(attached.queues.remove(0));
        rustix::io::ioctl_fionbio(&tap, true).unwrap();
        Self {
            mac,
            plan,
            tap,
            _vmm: vmm,
        }
    }

    fn address(&self) -> [u8; 4] {
        self.plan.member.address.octets()
    }

    fn address6(&self) -> [u8; 16] {
        self.plan.member.address6.unwrap().octets()
    }

    /// The address that its NIC gives itself.
    fn link_local(&self) -> [u8; 16] {
        let last = self.mac[5];
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, last.into()).octets()
    }

    /// Sends a frame behind the header of a tap.
    fn send(&mut self, frame: &[u8]) {
        let whole = [&[0; 10][..], frame, MARK].concat();
        // The bridge's port may be a moment late.
        let start = Instant::now();
        while let Err(error) = self.tap.write_all(&whole) {
            assert!(start.elapsed() < PATIENCE, "{error}");
            // The kernel signals to nobody that the port of a bridge forwards.
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Frames of guests that came to it until now.
    fn received(&mut self) -> usize {
        let mut frame = vec![0; 70_000];
        let mut count = 0;
        while let Ok(length) = self.tap.read(&mut frame) {
            count += usize::from(frame[..length].ends_with(MARK));
        }
        count
    }
}

fn ethernet(to: [u8; 6], from: [u8; 6], kind: [u8; 2], rest: &[u8]) -> Vec<u8> {
    [&to[..], &from, &kind, rest].concat()
}

/// A request (RFC 826) that says who is where.
fn arp((mac, address): ([u8; 6], [u8; 4]), asked: [u8; 4]) -> Vec<u8> {
    let head = [0, 1, 8, 0, 6, 4, 0, 1];
    [&head[..], &mac, &address, &[0; 6], &asked].concat()
}

fn udp(source: u16, destination: u16) -> Vec<u8> {
    let length = u16::try_from(8 + MARK.len()).unwrap();
    [source, destination, length, 0]
        .map(u16::to_be_bytes)
        .concat()
}

/// The sum of the Internet's headers (RFC 1071).
fn sum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |byte| u32::from(*byte)));
    let sum: u32 = words.sum();
    let folded = u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    (!folded).to_be_bytes()
}

fn ipv4(from: [u8; 4], to: [u8; 4], rest: &[u8]) -> Vec<u8> {
    ipv4_of(17, from, to, rest)
}

fn ipv4_of(protocol: u8, from: [u8; 4], to: [u8; 4], rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(20 + rest.len() + MARK.len()).unwrap();
    let mut header = [
        &[0x45, 0][..],
        &length.to_be_bytes(),
        &[0, 0, 0, 0, 64, protocol, 0, 0],
        &from,
        &to,
    ]
    .concat();
    let sum = sum(&header);
    header[10..12].copy_from_slice(&sum);
    [&header[..], rest].concat()
}

fn ipv6(protocol: u8, from: [u8; 16], to: [u8; 16], rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len() + MARK.len()).unwrap();
    [
        &[0x60, 0, 0, 0][..],
        &length.to_be_bytes(),
        &[protocol, 255],
        &from,
        &to,
        rest,
    ]
    .concat()
}

/// A message of ICMPv6, with the address that those about neighbours are about.
fn icmpv6(kind: u8, about: [u8; 16]) -> Vec<u8> {
    [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &about].concat()
}

/// What a guest may not send, each with what it would forge, but for IPv6.
fn forged(own: &Liar, other: &Liar) -> Vec<(&'static str, Vec<u8>)> {
    let (mac, node) = (own.mac, Ipv4Addr::new(10, 213, 0, 1).octets());
    let nobody = Ipv4Addr::new(10, 213, 0, 99).octets();
    let honest_arp = arp((mac, own.address()), other.address());
    let v4 = |mac, from| {
        ethernet(
            EVERYBODY,
            mac,
            IPV4,
            &ipv4(from, other.address(), &udp(5000, 5000)),
        )
    };
    let tagged = |kind: [u8; 2]| [&EVERYBODY[..], &mac, &kind, &[0, 5], &ARP, &honest_arp].concat();
    let to_all = |rest: &[u8]| ethernet(EVERYBODY, mac, ARP, rest);
    vec![
        ("another's MAC", v4(other.mac, own.address())),
        ("nobody's MAC", v4([2, 0, 0, 0, 0, 99], own.address())),
        ("an IPv4 address", v4(mac, nobody)),
        ("a neighbour's IPv4 address", v4(mac, other.address())),
        (
            "ARP for a neighbour",
            to_all(&arp((mac, other.address()), node)),
        ),
        (
            "ARP for the node",
            to_all(&arp((mac, node), other.address())),
        ),
        (
            "ARP of another's NIC",
            to_all(&arp((other.mac, own.address()), node)),
        ),
        (
            "the frame of honest ARP",
            ethernet(EVERYBODY, other.mac, ARP, &honest_arp),
        ),
        (
            "a DHCP offer",
            ethernet(
                EVERYBODY,
                mac,
                IPV4,
                &ipv4(own.address(), other.address(), &udp(67, 68)),
            ),
        ),
        ("a VLAN", tagged([0x81, 0x00])),
        ("a VLAN of a provider", tagged([0x88, 0xa8])),
        (
            "another protocol",
            ethernet(EVERYBODY, mac, [0x88, 0xcc], &[0; 50]),
        ),
    ]
}

/// The same for IPv6.
fn forged6(own: &Liar, other: &Liar) -> Vec<(&'static str, Vec<u8>)> {
    let mac = own.mac;
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).octets();
    let v6 = |from, protocol, rest: &[u8]| {
        ethernet(ALL_NODES, mac, IPV6, &ipv6(protocol, from, all_nodes, rest))
    };
    vec![
        (
            "a DHCPv6 advertisement",
            v6(own.link_local(), 17, &udp(547, 546)),
        ),
        (
            "an IPv6 address",
            v6(other.address6(), 17, &udp(5000, 5000)),
        ),
        ("a router", v6(own.link_local(), 58, &icmpv6(134, [0; 16]))),
        (
            "a neighbour's advertisement",
            v6(own.address6(), 58, &icmpv6(136, other.address6())),
        ),
        (
            "a neighbour's question",
            v6(other.link_local(), 58, &icmpv6(135, own.address6())),
        ),
        (
            "a redirection",
            v6(own.link_local(), 58, &icmpv6(137, other.address6())),
        ),
    ]
}

/// Frames of other kinds than what is behind them, and to groups of links, from which a bridge may learn without any rule.
fn forged_kinds(own: &Liar, other: &Liar) -> Vec<(&'static str, Vec<u8>)> {
    let honest_arp = arp((own.mac, own.address()), other.address());
    let tagged = |tags: &[[u8; 2]]| {
        let tags: Vec<u8> = tags
            .iter()
            .flat_map(|kind| [kind[0], kind[1], 0, 5])
            .collect();
        [&EVERYBODY[..], &own.mac, &tags, &ARP, &honest_arp].concat()
    };
    let length = |rest: &[u8]| {
        u16::try_from(rest.len() + MARK.len())
            .unwrap()
            .to_be_bytes()
    };
    // Headers of 802.2 in the place of a type (IEEE 802.3): SNAP with the type of ARP, and the spanning tree's.
    let snap = [&[0xaa, 0xaa, 3, 0, 0, 0][..], &ARP, &honest_arp].concat();
    let spanning_tree = [&[0x42, 0x42, 3][..], &[0; 35]].concat();
    let to_group =
        |last, kind, rest: &[u8]| ethernet([0x01, 0x80, 0xc2, 0, 0, last], other.mac, kind, rest);
    let priority = [
        &EVERYBODY[..],
        &own.mac,
        &[0x81, 0, 0xe0, 0],
        &ARP,
        &honest_arp,
    ]
    .concat();
    vec![
        ("a priority in a tag", priority),
        ("a VLAN in a VLAN", tagged(&[[0x81, 0x00], [0x81, 0x00]])),
        (
            "a VLAN in a provider's",
            tagged(&[[0x88, 0xa8], [0x81, 0x00]]),
        ),
        (
            "ARP behind a length",
            ethernet(EVERYBODY, own.mac, length(&snap), &snap),
        ),
        (
            "a spanning tree",
            to_group(0x00, length(&spanning_tree), &spanning_tree),
        ),
        ("link aggregation", to_group(0x02, [0x88, 0x09], &[0; 50])),
        ("a log-in at a port", to_group(0x03, [0x88, 0x8e], &[0; 50])),
        (
            "IPv4 to bridges of a provider",
            to_group(
                0x08,
                IPV4,
                &ipv4(own.address(), other.address(), &udp(1, 1)),
            ),
        ),
        ("LLDP", to_group(0x0e, [0x88, 0xcc], &[0; 50])),
    ]
}

/// Fragments (RFC 8200, section 4.5) the first of which says neither what it is a part of nor from which port it comes.
fn forged_fragments(own: &Liar) -> Vec<(&'static str, Vec<u8>)> {
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).octets();
    let first = |next: u8, rest: &[u8]| {
        let fragment = [&[next, 0, 0, 1, 0, 0, 0, 9][..], rest].concat();
        let mut packet = ipv6(44, own.link_local(), all_nodes, &fragment);
        // What follows is no part of the packet, but of the frame.
        let length = u16::try_from(fragment.len()).unwrap();
        packet[4..6].copy_from_slice(&length.to_be_bytes());
        ethernet(ALL_NODES, own.mac, IPV6, &packet)
    };
    let options = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
    let inner = |next: u8| [next, 0, 0, 1, 0, 0, 0, 8];
    vec![
        (
            "a server's fragment with options alone",
            first(60, &options(17)),
        ),
        (
            "a router's fragment with options alone",
            first(60, &options(58)),
        ),
        (
            "a server's fragment with a fragment's header alone",
            first(44, &inner(17)),
        ),
        ("a server's fragment without anything", first(17, &[])),
        (
            "a neighbour's fragment without its address",
            first(58, &[136, 0, 0, 0, 0, 0, 0, 0]),
        ),
        (
            "a fragment of a router",
            first(58, &[134, 0, 0, 0, 0, 0, 0, 0]),
        ),
        ("a fragment of a server", first(17, &udp(547, 546))),
    ]
}

/// A fragment that leaves nothing in the dark, and what tells the bridge that its sender is in a group (RFC 2236).
fn honest(own: &Liar) -> [(&'static str, Vec<u8>); 2] {
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).octets();
    let fragment = [&[17, 0, 0, 1, 0, 0, 0, 9][..], &udp(5000, 5000)].concat();
    let fragment = ipv6(44, own.address6(), all_nodes, &fragment);
    let group = [239, 1, 2, 3];
    let mut report = [&[0x16, 0, 0, 0][..], &group].concat();
    let sum = sum(&[&report[..], MARK].concat());
    report[2..4].copy_from_slice(&sum);
    let report = ipv4_of(2, own.address(), group, &report);
    [
        ("a fragment", ethernet(ALL_NODES, own.mac, IPV6, &fragment)),
        (
            "a member",
            ethernet([1, 0, 0x5e, 1, 2, 3], own.mac, IPV4, &report),
        ),
    ]
}

/// Packets that the walls have dropped.
fn dropped(node: impl Fn(&str) -> String) -> u64 {
    let rules = node("nft list table bridge kvmlet");
    // Of the rules, which say what is done, and not of the set.
    let counts = rules.lines().filter(|line| line.contains("jump refuse"));
    counts
        .filter_map(|line| line.split("counter packets ").nth(1))
        .map(|rest| rest.split(' ').next().unwrap().parse::<u64>().unwrap())
        .sum()
}

/// Waits until it is so.
fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        // Frames and the kernel's counters are looked at: nothing reports them.
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn each_forged_frame_is_dropped_and_counted_and_a_neighbour_is_undisturbed() {
    in_a_namespace(async || {
        let node = |command: &str| {
            let output = Command::new("sh").args(["-c", command]).output().unwrap();
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
        };
        prepare_node(&plan().node, &[]).await.unwrap();
        let (mut liar, mut neighbour) = (Liar::new(7).await, Liar::new(8).await);
        // Where the node and its bridge know the neighbour to be.
        let asks = arp((neighbour.mac, neighbour.address()), [10, 213, 0, 1]);
        let known = || {
            let at = node("ip neigh show 10.213.0.8");
            let port = node("bridge fdb show br kvmlet0 | grep 02:00:00:00:00:08");
            at.contains("lladdr 02:00:00:00:00:08") && port.contains("dev kvp0000000008")
        };
        wait("the neighbour is known", || {
            neighbour.send(&ethernet(EVERYBODY, neighbour.mac, ARP, &asks));
            known()
        });
        // What is honest comes through.
        let asks = arp((liar.mac, liar.address()), neighbour.address());
        wait("the neighbour is asked", || {
            liar.send(&ethernet(EVERYBODY, liar.mac, ARP, &asks));
            neighbour.received() > 0
        });
        let all = [
            forged(&liar, &neighbour),
            forged6(&liar, &neighbour),
            forged_kinds(&liar, &neighbour),
            forged_fragments(&liar),
        ];
        let mut lies = 0;
        for (what, frame) in all.into_iter().flatten() {
            lies += 1;
            let before = dropped(node);
            liar.send(&frame);
            wait(what, || dropped(node) > before);
            assert!(known(), "{what} moved the neighbour");
        }
        assert_eq!(neighbour.received(), 0);
        // It is known who did it.
        let netfilter = Netfilter::open().unwrap();
        let refused = |link: &str| refused_of(&netfilter, TABLE, link).unwrap();
        assert!(refused(&liar.plan.member.veth) >= Some(lies));
        assert!(refused(&neighbour.plan.member.veth) < Some(lies));
        liar.send(&ethernet(EVERYBODY, liar.mac, ARP, &asks));
        wait("the neighbour is asked again", || neighbour.received() > 0);
        // The bridge keeps no lists of groups, because a guest could have it keep frames from others.
        for (what, frame) in honest(&liar) {
            liar.send(&frame);
            wait(what, || neighbour.received() > 0);
        }
        let groups = node("bridge mdb show");
        assert!(!groups.contains("239.1.2.3"), "{groups}");
    });
}
