//! The guests of the campaign.

/// Which of both families a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Families {
    /// IPv4 and IPv6.
    Both,
    /// IPv4 alone.
    V4,
    /// IPv6 alone.
    V6,
}

/// What a guest is joined to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// The pod network, with `masquerade` and a list of open ports.
    Pod,
    /// The bridge of the node, with `bridge`, where a stock dnsmasq answers.
    Dnsmasq,
}

/// A guest with a client of Debian's.
#[derive(Debug)]
pub struct Client {
    /// Of the guest. Up to the last hyphen it names the program, after that the families; `guest-images/clients/init` goes by it.
    pub name: &'static str,
    pub(super) families: Families,
    pub(super) network: Network,
}

const fn client(name: &'static str, families: Families) -> Client {
    Client {
        name,
        families,
        network: Network::Pod,
    }
}

/// All of them. Debian's busybox has no `udhcpc6`.
pub const CLIENTS: [Client; 8] = [
    client("dhclient-both", Families::Both),
    client("dhclient-ipv4", Families::V4),
    client("dhclient-ipv6", Families::V6),
    client("networkd-both", Families::Both),
    client("networkd-ipv4", Families::V4),
    client("networkd-ipv6", Families::V6),
    client("udhcpc-ipv4", Families::V4),
    Client {
        name: "dhclient-both-dnsmasq",
        families: Families::Both,
        network: Network::Dnsmasq,
    },
];

impl Client {
    /// The word of the guest's command line.
    pub(super) fn word(&self) -> &'static str {
        self.name.strip_suffix("-dnsmasq").unwrap_or(self.name)
    }

    /// Whether it asks for IPv4.
    pub(super) fn has_v4(&self) -> bool {
        self.families != Families::V6
    }

    /// Whether it asks for IPv6.
    pub(super) fn has_v6(&self) -> bool {
        self.families != Families::V4
    }
}
