//! Which IP addresses a guest on a bridge of the configuration sends from.
//!
//! Somebody else's server gives them out. The kernel learns them from what such a server acknowledges to the guest (DHCPv4), or the
//! configuration names them; a guest of which neither is known is not judged by its addresses. Nobody but the rules themselves
//! reads what a server says, and they go on while the agent is away.

use std::io;
use std::net::{IpAddr, Ipv6Addr};

use agent_plan::JudgedAddresses;

use super::nic::Nic;
use crate::netfilter::{
    Batch, Comparison, Family, Field, Netfilter, Part, Rule, Set, TableName, Value,
};
use crate::pod::chains::{ARP, ICMPV6, IPV4, IPV6, NEIGHBOUR_ADVERTISEMENT, UDP, link_local};

use Comparison::{Is, IsNot};

/// Taps with the addresses that their guests may send from.
const ADDRESSES: &str = "addresses";
const ADDRESSES6: &str = "addresses6";

/// Taps whose guests' addresses are known.
const KNOWN: &str = "known";
const KNOWN6: &str = "known6";

const SETS: [&str; 4] = [ADDRESSES, ADDRESSES6, KNOWN, KNOWN6];

/// Offsets in a message of DHCPv4 (RFC 2131, figure 1), from the beginning of UDP's header of eight bytes.
mod message {
    /// op, htype and hlen: a server's, of Ethernet.
    pub(super) const HEAD: (u32, [u8; 3]) = (8, [2, 1, 6]);
    /// yiaddr: what the client is given.
    pub(super) const ADDRESS: u32 = 24;
    /// chaddr: the client.
    pub(super) const CLIENT: u32 = 36;
    /// The cookie, and behind it option 53 (RFC 2132, section 9.6): an acknowledgement. Servers put it first.
    pub(super) const ACKNOWLEDGED: (u32, [u8; 7]) = (244, [99, 130, 83, 99, 53, 1, 5]);
}

/// What is in each set from the start, where the configuration names addresses. Those are all that the guest has: it is
/// judged by them in both families.
pub(super) fn sets(nics: &[Nic]) -> [Set; 4] {
    let configured = || nics.iter().filter(|nic| !nic.addresses.is_empty());
    let tap = |nic: &Nic| Value::InterfaceName(nic.tap.clone());
    let with = |nic: &Nic, address: IpAddr| match address {
        IpAddr::V4(address) => vec![tap(nic), Value::Ipv4(address)],
        IpAddr::V6(address) => vec![tap(nic), Value::Ipv6(address)],
    };
    let of_nic = |nic: &Nic, is_wanted: fn(&IpAddr) -> bool| -> Vec<_> {
        let own = IpAddr::V6(link_local(nic.mac));
        let all = nic.addresses.iter().copied().chain([own]);
        let wanted = all.filter(is_wanted);
        wanted.map(|address| with(nic, address)).collect()
    };
    let set = |name, fields, elements| Set {
        name,
        fields,
        elements,
        counts: false,
        learns: true,
    };
    let addresses = |is_wanted: fn(&IpAddr) -> bool| {
        let elements = configured().flat_map(|nic| of_nic(nic, is_wanted));
        elements.collect::<Vec<_>>()
    };
    let taps = || configured().map(|nic| vec![tap(nic)]).collect::<Vec<_>>();
    [
        set(
            ADDRESSES,
            vec![Field::InterfaceName, Field::Ipv4],
            addresses(IpAddr::is_ipv4),
        ),
        set(
            ADDRESSES6,
            vec![Field::InterfaceName, Field::Ipv6],
            addresses(IpAddr::is_ipv6),
        ),
        set(KNOWN, vec![Field::InterfaceName], taps()),
        set(KNOWN6, vec![Field::InterfaceName], taps()),
    ]
}

/// What is no guest's to send whose addresses are known. Nobody's address is a client's that has none yet.
pub(super) fn forged() -> [Rule; 4] {
    let of_type = |number: u16| Rule::new().link(12, Is, &number.to_be_bytes());
    let nobody = Ipv6Addr::UNSPECIFIED.octets();
    let forged4 = |kind: u16, offset: u32| {
        of_type(kind)
            .network(offset, IsNot, &[0; 4])
            .input_and(KNOWN, false, &[])
            .input_and(ADDRESSES, true, &[(Part::Network, offset, 4)])
            .refuse()
    };
    let forged6 = |rule: Rule, part: (Part, u32, u32)| {
        rule.input_and(KNOWN6, false, &[])
            .input_and(ADDRESSES6, true, &[part])
            .refuse()
    };
    [
        forged4(ARP, 14),
        forged4(IPV4, 12),
        forged6(
            of_type(IPV6).network(8, IsNot, &nobody),
            (Part::Network, 8, 16),
        ),
        forged6(
            of_type(IPV6)
                .transport(ICMPV6)
                .icmp_type(NEIGHBOUR_ADVERTISEMENT),
            (Part::Transport, 8, 16),
        ),
    ]
}

/// What a server acknowledges to the guest behind the tap that the frame leaves by. No guest that is judged can send such a
/// message.
pub(super) fn learned(nics: &'static str) -> [Rule; 2] {
    let acknowledged = || {
        let (head, head_bytes) = message::HEAD;
        let (cookie, cookie_bytes) = message::ACKNOWLEDGED;
        Rule::new()
            .link(12, Is, &IPV4.to_be_bytes())
            .network(9, Is, &[UDP])
            .source_port(67)
            .destination_ports(68, 68)
            .transport_bytes(head, Is, &head_bytes)
            .transport_bytes(cookie, Is, &cookie_bytes)
            // An answer to a client that has its address from elsewhere gives none.
            .transport_bytes(message::ADDRESS, IsNot, &[0; 4])
            .output_and(nics, false, &[(Part::Transport, message::CLIENT, 6)])
    };
    [
        acknowledged().learn_output_and(ADDRESSES, &[(Part::Transport, message::ADDRESS, 4)]),
        acknowledged().learn_output_and(KNOWN, &[]),
    ]
}

/// Has a transaction remove the elements of taps.
pub(super) fn remove(
    netfilter: &Netfilter,
    (batch, table): (&mut Batch, &str),
    goes: impl Fn(&str) -> bool,
) -> io::Result<()> {
    let table = (Family::Bridge, table);
    for set in SETS {
        let mut keys = netfilter.elements_of(table, set)?;
        keys.retain(|key| tap_of(key).is_some_and(&goes));
        batch.delete_keys(table, set, &keys);
    }
    Ok(())
}

/// The name that an element begins with.
fn tap_of(key: &[u8]) -> Option<&str> {
    let name = key.split(|byte| *byte == 0).next()?;
    str::from_utf8(name).ok()
}

/// Of which families a guest is judged by its addresses at a tap.
pub(super) fn judged(
    netfilter: &Netfilter,
    table: TableName<'_>,
    tap: &str,
) -> io::Result<JudgedAddresses> {
    let knows = |set| netfilter.has_element(table, set, vec![Value::InterfaceName(tap.to_owned())]);
    Ok(JudgedAddresses {
        ipv4: knows(KNOWN)?,
        ipv6: knows(KNOWN6)?,
    })
}
