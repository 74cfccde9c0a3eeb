//! The pod network, as a guest has it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::name::NetworkName;

/// What an interface joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// The bridge of a network of the configuration.
    Network(NetworkName),
    /// The pod network. At most one interface of a VMI does.
    Pod(Box<PodInterface>),
}

impl Attachment {
    /// KubeVirt's word for what it joins.
    #[must_use]
    pub fn network(&self) -> &str {
        match self {
            Self::Network(name) => name.as_str(),
            Self::Pod(_) => "pod networking",
        }
    }

    /// KubeVirt's word for how.
    #[must_use]
    pub fn binding(&self) -> &'static str {
        match self {
            Self::Pod(pod) if pod.binding == PodBinding::Masquerade => "masquerade",
            Self::Network(_) | Self::Pod(_) => "bridge",
        }
    }
}

/// An interface of the pod network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodInterface {
    /// How the guest is joined to it.
    pub binding: PodBinding,
    /// The guest's own IPv4 network under masquerade (`vmNetworkCIDR`).
    pub v4: GuestNetwork<Ipv4Addr>,
    /// The guest's own IPv6 network under masquerade (`vmIPv6NetworkCIDR`).
    pub v6: GuestNetwork<Ipv6Addr>,
    /// Ports that are open to the pod network, under masquerade; empty: all.
    pub ports: Vec<OpenPorts>,
    /// What DHCP hands out beyond the usual.
    pub dhcp: DhcpOptions,
}

/// How a guest is joined to the pod network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodBinding {
    /// It has an address of its own behind that of the pod.
    Masquerade,
    /// It has the pod's address.
    Bridge,
}

/// A network with one guest and its gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestNetwork<A> {
    /// Address that the guest's DHCP client gets.
    pub guest: A,
    /// Address that the guest's default route goes to.
    pub gateway: A,
    /// Bits of the network.
    pub prefix: u8,
}

impl Default for GuestNetwork<Ipv4Addr> {
    /// KubeVirt's: 10.0.2.0/24.
    fn default() -> Self {
        Self {
            guest: Ipv4Addr::new(10, 0, 2, 2),
            gateway: Ipv4Addr::new(10, 0, 2, 1),
            prefix: 24,
        }
    }
}

impl Default for GuestNetwork<Ipv6Addr> {
    /// KubeVirt's: fd10:0:2::/120.
    fn default() -> Self {
        Self {
            guest: Ipv6Addr::new(0xfd10, 0, 2, 0, 0, 0, 0, 2),
            gateway: Ipv6Addr::new(0xfd10, 0, 2, 0, 0, 0, 0, 1),
            prefix: 120,
        }
    }
}

/// Ports that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenPorts {
    /// Of which protocol.
    pub transport: Transport,
    /// The first, at least 1.
    pub first: u16,
    /// The last, not before the first.
    pub last: u16,
}

/// A protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// IP protocol 6.
    Tcp,
    /// IP protocol 17.
    Udp,
}

impl Transport {
    /// The one with this [name](Self::name).
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Tcp, Self::Udp]
            .into_iter()
            .find(|transport| transport.name() == name)
    }

    /// As command lines and configuration have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// What DHCP hands out beyond the usual. Texts are printable ASCII of at most 255 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DhcpOptions {
    /// `bootFileName`
    pub boot_file: String,
    /// `tftpServerName`
    pub tftp_server: String,
    /// `ntpServers`
    pub ntp_servers: Vec<Ipv4Addr>,
    /// `privateOptions`: number from 224 to 254, and text.
    pub private: Vec<(u8, String)>,
}

/// DNS settings of the guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestNames {
    /// Subdomain: a DNS subdomain; may be empty.
    pub subdomain: String,
    /// The node's own servers and domains do not count (`dnsPolicy: None`).
    pub own_only: bool,
    /// Servers, three at most.
    pub servers: Vec<IpAddr>,
    /// Domains that names are looked for in, six at most.
    pub searches: Vec<String>,
}

/// The pod network of a node, as far as admission has to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodPool {
    /// The pool's network.
    pub network: Ipv4Addr,
    /// Its bits.
    pub prefix: u8,
    /// The network of its IPv6 addresses, of 64 bits, if it has any.
    pub network6: Option<Ipv6Addr>,
}

impl PodPool {
    /// The IPv6 address that goes with an IPv4 address of the pool: its number is the same.
    #[must_use]
    pub fn address6(&self, address: Ipv4Addr) -> Option<Ipv6Addr> {
        let number = u32::from(address).checked_sub(u32::from(self.network))?;
        let network = u128::from(self.network6?);
        Some(Ipv6Addr::from(network | u128::from(number)))
    }

    /// Whether it and another network have an address in common.
    #[must_use]
    pub fn overlaps(&self, other: &GuestNetwork<Ipv4Addr>) -> bool {
        let bits = u32::from(self.prefix.min(other.prefix).min(32));
        let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
        u32::from(self.network) & mask == u32::from(other.guest) & mask
    }

    /// The same of its network of IPv6 addresses.
    #[must_use]
    pub fn overlaps6(&self, other: &GuestNetwork<Ipv6Addr>) -> bool {
        let bits = u32::from(other.prefix.min(64));
        self.network6.is_some_and(|network| {
            (u128::from(network) ^ u128::from(other.guest)).leading_zeros() >= bits
        })
    }
}
