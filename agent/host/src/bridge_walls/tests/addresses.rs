use std::net::{IpAddr, Ipv6Addr};

use super::*;

/// Somebody on the network who is no guest of the node.
const SERVER: [u8; 6] = [2, 0, 0, 0, 0, 1];

const OWN: [u8; 4] = [192, 0, 2, 7];
const ANOTHERS: [u8; 4] = [192, 0, 2, 8];

const ACKNOWLEDGES: u8 = 5;
const OFFERS: u8 = 2;

/// A message of a DHCPv4 server to everybody (RFC 2131), with the type of the message in its first option.
fn answer(kind: u8, client: [u8; 6], address: [u8; 4]) -> Vec<u8> {
    let mut message = vec![2, 1, 6, 0];
    message.resize(16, 0);
    message.extend(address);
    message.resize(28, 0);
    message.extend(client);
    message.resize(236, 0);
    message.extend([99, 130, 83, 99, 53, 1, kind]);
    let length = |bytes: usize| u16::try_from(bytes).unwrap().to_be_bytes();
    let udp = [
        &[0, 67, 0, 68][..],
        &length(8 + message.len() + MARK.len()),
        &[0; 2],
        &message,
    ];
    let udp = udp.concat();
    let mut packet = ipv4(&udp);
    packet[2..4].copy_from_slice(&length(20 + udp.len() + MARK.len()));
    ethernet(SERVER, &TYPE4, &packet)
}

/// A question by ARP from an address.
fn asks(mac: [u8; 6], from: [u8; 4]) -> Vec<u8> {
    let mut question = arp(mac);
    question[14..18].copy_from_slice(&from);
    ethernet(mac, &TYPE_ARP, &question)
}

/// A packet from an address of IPv6.
fn from6(from: &str, protocol: u8, rest: &[u8]) -> Vec<u8> {
    let from: Ipv6Addr = from.parse().unwrap();
    let mut packet = ipv6(protocol, rest);
    packet[8..24].copy_from_slice(&from.octets());
    ethernet(LIAR, &TYPE6, &packet)
}

/// An advertisement of a neighbour, for an address.
fn advertises(from: &str, target: &str) -> Vec<u8> {
    let target: Ipv6Addr = target.parse().unwrap();
    let message = [&[136, 0, 0, 0, 0, 0, 0, 0][..], &target.octets()].concat();
    from6(from, 58, &message)
}

/// Two guests, of whom the first one is to be judged by its addresses, and a server.
struct Network {
    liar: Guest,
    neighbour: Guest,
    server: Guest,
}

impl Network {
    async fn new() -> Self {
        make_bridge();
        let mut network = Self {
            liar: Guest::new("kv0000000007n0", LIAR).await,
            neighbour: Guest::new("kv0000000008n0", NEIGHBOUR).await,
            server: Guest::new("server", SERVER).await,
        };
        restore(&network.nics()).unwrap();
        let greeting = ethernet(SERVER, &TYPE_ARP, &arp(SERVER));
        wait("the bridge's ports forward", || {
            network.server.send(&greeting);
            network.liar.received() > 0
        });
        network
    }

    fn nics(&self) -> [Nic; 2] {
        [self.liar.nic.clone(), self.neighbour.nic.clone()]
    }

    /// A message of the server arrives at every guest.
    fn server_sends(&mut self, message: &[u8]) {
        self.liar.received();
        self.server.send(message);
        wait("a message of the server", || self.liar.received() > 0);
    }

    fn passes(&mut self, what: &str, frame: &[u8]) {
        self.neighbour.received();
        self.liar.send(frame);
        wait(what, || self.neighbour.received() > 0);
    }

    fn is_dropped(&mut self, what: &str, frame: &[u8]) {
        self.neighbour.received();
        let before = dropped();
        self.liar.send(frame);
        wait(what, || dropped() > before);
        assert_eq!(self.neighbour.received(), 0, "{what}");
    }
}

fn judged(nic: &Nic) -> (bool, bool) {
    let judged = judged_at(&nic.tap).unwrap();
    (judged.ipv4, judged.ipv6)
}

#[test]
fn a_guest_sends_from_the_address_that_a_server_has_acknowledged_to_it() {
    in_a_namespace(async || {
        let mut network = Network::new().await;
        let anothers = asks(LIAR, ANOTHERS);
        network.passes("nobody knows its address yet", &anothers);
        for (what, message) in [
            ("an offer", answer(OFFERS, LIAR, OWN)),
            ("nothing is given", answer(ACKNOWLEDGES, LIAR, [0; 4])),
            ("to somebody else", answer(ACKNOWLEDGES, SERVER, OWN)),
        ] {
            network.server_sends(&message);
            assert_eq!(judged(&network.liar.nic), (false, false), "{what}");
        }
        network.server_sends(&answer(ACKNOWLEDGES, LIAR, OWN));
        assert_eq!(judged(&network.liar.nic), (true, false));
        assert_eq!(judged(&network.neighbour.nic), (false, false));
        let shown = node("nft list set bridge kvmlet-networks addresses");
        assert!(
            shown.contains("elements = { \"kv0000000007n0\" . 192.0.2.7 }"),
            "{shown}"
        );

        network.passes("its own address", &asks(LIAR, OWN));
        network.passes("it looks whether an address is free", &asks(LIAR, [0; 4]));
        network.is_dropped("ARP from another's address", &anothers);
        let mut packet = ipv4(&udp(5000));
        network.passes("its own packet", &ethernet(LIAR, &TYPE4, &packet));
        packet[12..16].copy_from_slice(&ANOTHERS);
        network.is_dropped("another's packet", &ethernet(LIAR, &TYPE4, &packet));
        packet[7] = 9;
        network.is_dropped("a later fragment of it", &ethernet(LIAR, &TYPE4, &packet));

        // Another agent knows it still, and forgets the one that is gone.
        network.server_sends(&answer(ACKNOWLEDGES, NEIGHBOUR, ANOTHERS));
        assert_eq!(judged(&network.neighbour.nic), (true, false));
        restore(std::slice::from_ref(&network.liar.nic)).unwrap();
        network.is_dropped("ARP, before another agent", &anothers);
        assert_eq!(judged(&network.neighbour.nic), (false, false));
        // A guest that starts over has no address yet.
        change(std::slice::from_ref(&network.liar.nic), false).unwrap();
        change(std::slice::from_ref(&network.liar.nic), true).unwrap();
        assert_eq!(judged(&network.liar.nic), (false, false));
        network.passes("nobody knows its address again", &anothers);
    });
}

#[test]
fn a_guest_whose_addresses_the_configuration_names_sends_from_those_alone() {
    in_a_namespace(async || {
        let mut network = Network::new().await;
        let own6 = "2001:db8::7";
        let anothers6 = "2001:db8::8";
        change(std::slice::from_ref(&network.liar.nic), false).unwrap();
        network.liar.nic.addresses = vec![IpAddr::from(OWN), own6.parse().unwrap()];
        change(std::slice::from_ref(&network.liar.nic), true).unwrap();
        assert_eq!(judged(&network.liar.nic), (true, true));
        let datagram = |from| from6(from, 17, &udp(5000));
        network.passes("its own address", &asks(LIAR, OWN));
        network.is_dropped("another's address", &asks(LIAR, ANOTHERS));
        for (what, from) in [
            ("its own", own6),
            ("its NIC's", "fe80::ff:fe00:7"),
            ("nobody's", "::"),
        ] {
            network.passes(what, &datagram(from));
        }
        network.is_dropped("another's of IPv6", &datagram(anothers6));
        network.passes("it tells its own", &advertises(own6, own6));
        network.is_dropped("it tells another's", &advertises(own6, anothers6));
        // What a server gives it besides counts too.
        network.server_sends(&answer(ACKNOWLEDGES, LIAR, ANOTHERS));
        network.passes("given by a server", &asks(LIAR, ANOTHERS));
        restore(&network.nics()).unwrap();
        network.is_dropped("before another agent", &datagram(anothers6));
    });
}
