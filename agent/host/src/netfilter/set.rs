//! Sets of values, and how the kernel stores these.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Longest name of an interface, with the zero at its end.
const IFNAMSIZ: usize = 16;

/// A set of values that rules look packets up in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Set {
    pub(crate) name: &'static str,
    pub(crate) fields: Vec<Field>,
    pub(crate) elements: Vec<Vec<Value>>,
    /// Each element counts the packets that were found in it.
    pub(crate) counts: bool,
    /// Rules add elements to it, up to [`MAX_LEARNED`].
    pub(crate) learns: bool,
}

impl Set {
    /// Its elements as the kernel has them, those of several fields one behind the other.
    pub(super) fn keys(&self) -> Vec<Vec<u8>> {
        let key = |element: &Vec<Value>| element.iter().flat_map(Value::padded).collect();
        self.elements.iter().map(key).collect()
    }
}

/// What rules may add to a set: packets of others fill it.
pub(super) const MAX_LEARNED: u32 = 1 << 16;

/// What a part of an element is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    InterfaceName,
    Mac,
    Ipv4,
    Ipv6,
}

/// A part of an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    InterfaceName(String),
    Mac([u8; 6]),
    Ipv4(Ipv4Addr),
    Ipv6(Ipv6Addr),
}

impl Field {
    /// The kernel pads parts of an element to 32 bits.
    pub(super) const fn padded_bytes(self) -> u32 {
        match self {
            Self::InterfaceName | Self::Ipv6 => 16,
            Self::Mac => 8,
            Self::Ipv4 => 4,
        }
    }

    /// The number of `nft`, which shows elements by it. The kernel does not look at it.
    pub(super) const fn shown_as(self) -> u32 {
        match self {
            Self::Ipv4 => 7,
            Self::Ipv6 => 8,
            Self::Mac => 9,
            Self::InterfaceName => 41,
        }
    }
}

impl Value {
    pub(super) fn padded(&self) -> Vec<u8> {
        let mut bytes = match self {
            Self::InterfaceName(name) => interface_name(name).to_vec(),
            Self::Mac(mac) => mac.to_vec(),
            Self::Ipv4(address) => address.octets().to_vec(),
            Self::Ipv6(address) => address.octets().to_vec(),
        };
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }
}

/// An interface's name as packets carry it. One that is too long is no interface's.
pub(super) fn interface_name(name: &str) -> [u8; IFNAMSIZ] {
    let mut bytes = [0; IFNAMSIZ];
    for (into, byte) in bytes.iter_mut().zip(name.bytes().take(IFNAMSIZ - 1)) {
        *into = byte;
    }
    bytes
}
