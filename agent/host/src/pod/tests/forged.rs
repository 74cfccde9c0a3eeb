//! A guest that lies: raw frames in the place of a bridged guest's, each of which is dropped at the node's end of its veth
//! and counted, and a neighbour that notices nothing.

use std::time::{Duration, Instant};

use super::*;

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

    /// The address that its card gives itself.
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

fn ipv4(from: [u8; 4], to: [u8; 4], rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(20 + rest.len() + MARK.len()).unwrap();
    let mut header = [
        &[0x45, 0][..],
        &length.to_be_bytes(),
        &[0, 0, 0, 0, 64, 17, 0, 0],
        &from,
        &to,
    ]
    .concat();
    let words = header
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    let folded = u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    header[10..12].copy_from_slice(&(!folded).to_be_bytes());
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
            "ARP of another's card",
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

/// Packets that the walls have dropped.
fn dropped(node: impl Fn(&str) -> String) -> u64 {
    let rules = node("nft list chain bridge kvmlet prerouting");
    let counts = rules.split("counter packets ").skip(1);
    counts
        .map(|rest| rest.split(' ').next().unwrap().parse::<u64>().unwrap())
        .sum()
}

/// Waits until it is so.
fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
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
        let all = forged(&liar, &neighbour).into_iter();
        for (what, frame) in all.chain(forged6(&liar, &neighbour)) {
            let before = dropped(node);
            liar.send(&frame);
            wait(what, || dropped(node) > before);
            assert!(known(), "{what} moved the neighbour");
        }
        assert_eq!(neighbour.received(), 0);
        liar.send(&ethernet(EVERYBODY, liar.mac, ARP, &asks));
        wait("the neighbour is asked again", || neighbour.received() > 0);
    });
}
