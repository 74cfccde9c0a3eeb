//! Content of the answers to a guest.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// A guest and what its answers say. Texts are printable ASCII without blanks, by whoever fills it in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// Its hardware address: nobody else is answered.
    pub mac: [u8; 6],
    /// The MTU of its link.
    pub mtu: u16,
    /// Its IPv4 address, if it has one.
    pub v4: Option<Lease4>,
    /// Its IPv6 address, if it has one.
    #[serde(default)]
    pub v6: Option<Lease6>,
    /// Its host name, without a domain; empty: it has none.
    pub hostname: String,
    /// Its domain; empty: it has none.
    pub domain: String,
    /// Domains that it looks for names in.
    pub search: Vec<String>,
    /// `bootFileName`; empty: none.
    pub boot_file: String,
    /// `tftpServerName`; empty: none.
    pub tftp_server: String,
    /// `ntpServers`.
    pub ntp_servers: Vec<Ipv4Addr>,
    /// `privateOptions`: numbers 224 to 254, and their texts.
    pub private: Vec<(u8, String)>,
}

/// An IPv4 address and what goes with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease4 {
    /// The guest's address.
    pub address: Ipv4Addr,
    /// Bits of its network, at most 32.
    pub prefix: u8,
    /// Its router; the server too, unless it says otherwise.
    pub gateway: Ipv4Addr,
    /// The server, where that is not the router.
    pub server: Option<Ipv4Addr>,
    /// Its DNS servers.
    pub dns: Vec<Ipv4Addr>,
    /// Networks, with their bits, that it reaches by its router as everything else, and that are announced to it one by one.
    #[serde(default)]
    pub routes: Vec<(Ipv4Addr, u8)>,
}

impl Lease4 {
    /// Address of the server, as answers name it.
    #[must_use]
    pub fn server(&self) -> Ipv4Addr {
        self.server.unwrap_or(self.gateway)
    }

    /// The mask of the network.
    #[must_use]
    pub fn mask(&self) -> Ipv4Addr {
        let bits = u32::from(self.prefix.min(32));
        Ipv4Addr::from(u32::MAX.checked_shl(32 - bits).unwrap_or(0))
    }

    /// The address of all in the network.
    #[must_use]
    pub fn broadcast(&self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.address) | !u32::from(self.mask()))
    }
}

/// An IPv6 address and what goes with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease6 {
    /// The guest's address.
    pub address: Ipv6Addr,
    /// Bits of its network, at most 128.
    pub prefix: u8,
    /// Its DNS servers.
    pub dns: Vec<Ipv6Addr>,
    /// Networks, with their bits, that its router says it leads to beside everything else.
    #[serde(default)]
    pub routes: Vec<(Ipv6Addr, u8)>,
}
