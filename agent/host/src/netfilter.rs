//! Rules of nftables, over netlink: an encoder of as much of it as the pod network needs.
//!
//! Everything is sent in transactions, so that a table is always the old or the new one and never in between. What
//! the kernel made of it is compared with `nft -j` in tests; at run time no such program is needed.

mod attributes;
mod batch;
mod expression;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use self::attributes::Attributes;
pub(crate) use self::batch::{Batch, Netfilter, TableName};
pub(crate) use self::expression::{Comparison, Part, Rule};

/// A family of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// IPv4 and IPv6.
    Inet,
    /// Frames of bridges.
    Bridge,
}

impl Family {
    const fn number(self) -> u8 {
        match self {
            Self::Inet => 1,
            Self::Bridge => 7,
        }
    }
}

/// Netfilter's hook of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    Prerouting,
    Input,
    Forward,
    Output,
    Postrouting,
}

impl Hook {
    const fn number(self) -> u32 {
        match self {
            Self::Prerouting => 0,
            Self::Input => 1,
            Self::Forward => 2,
            Self::Output => 3,
            Self::Postrouting => 4,
        }
    }
}

/// nftables' verdict on a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Accept,
    Drop,
    /// Goes on in another chain, and comes back.
    Jump(String),
}

/// A chain as it is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    pub(crate) name: &'static str,
    /// Its hook and policy; `None` for a chain that is only jumped to.
    pub(crate) base: Option<Base>,
    pub(crate) rules: Vec<Rule>,
}

/// A chain that sees packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Base {
    pub(crate) kind: ChainKind,
    pub(crate) hook: Hook,
    pub(crate) priority: i32,
    /// The chain's policy: packets that no rule decides on are dropped; without this they are accepted.
    pub(crate) drops: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChainKind {
    Filter,
    Nat,
}

impl ChainKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Nat => "nat",
        }
    }
}

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

/// What rules may add to a set: packets of others fill it.
const MAX_LEARNED: u32 = 1 << 16;

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
    const fn padded_bytes(self) -> u32 {
        match self {
            Self::InterfaceName | Self::Ipv6 => 16,
            Self::Mac => 8,
            Self::Ipv4 => 4,
        }
    }

    /// The number of `nft`, which shows elements by it. The kernel does not look at it.
    const fn shown_as(self) -> u32 {
        match self {
            Self::Ipv4 => 7,
            Self::Ipv6 => 8,
            Self::Mac => 9,
            Self::InterfaceName => 41,
        }
    }
}

impl Value {
    fn padded(&self) -> Vec<u8> {
        let mut bytes = match self {
            Self::InterfaceName(name) => expression::interface_name(name).to_vec(),
            Self::Mac(mac) => mac.to_vec(),
            Self::Ipv4(address) => address.octets().to_vec(),
            Self::Ipv6(address) => address.octets().to_vec(),
        };
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }
}

/// A table as it is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) family: Family,
    pub(crate) name: &'static str,
    /// Shown to whoever lists it.
    pub(crate) comment: String,
    pub(crate) sets: Vec<Set>,
    pub(crate) chains: Vec<Chain>,
}

impl Table {
    /// Has a transaction put the elements of its sets in the place of whatever is in them. What rules have added stays.
    pub(crate) fn refill(&self, batch: &mut Batch) {
        for set in &self.sets {
            if !set.learns {
                batch.empty_set((self.family, self.name), set.name);
            }
            batch.add_elements((self.family, self.name), set.name, &set.elements);
        }
    }

    /// Makes it where most likely none of its name is, else replaces that. After a transaction that deleted something the kernel has
    /// whoever closes a socket to netfilter wait for milliseconds, until nobody can be using it any more.
    ///
    /// # Errors
    /// When the kernel does not take it.
    pub(crate) fn make(&self, netfilter: &Netfilter) -> io::Result<()> {
        let mut batch = Batch::default();
        self.create(&mut batch);
        match netfilter.commit(batch) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let mut batch = Batch::default();
                self.replace(&mut batch);
                netfilter.commit(batch)
            }
            made => made,
        }
    }

    /// Has a transaction put it in the place of whatever has its name.
    pub(crate) fn replace(&self, batch: &mut Batch) {
        // A table that is not there cannot be deleted, and making one that is there changes nothing.
        batch.add_table(self.family, self.name);
        batch.delete_table(self.family, self.name);
        self.create(batch);
    }

    /// Has a transaction make it, which fails where there is one of its name.
    fn create(&self, batch: &mut Batch) {
        batch.create_table(self.family, self.name, &self.comment);
        for set in &self.sets {
            batch.add_set((self.family, self.name), set);
            batch.add_elements((self.family, self.name), set.name, &set.elements);
        }
        for chain in &self.chains {
            batch.add_chain((self.family, self.name), chain);
        }
        // Rules jump to chains that come later.
        for chain in &self.chains {
            for rule in &chain.rules {
                batch.add_rule((self.family, self.name), chain.name, rule);
            }
        }
    }
}

#[cfg(test)]
pub(crate) use tests::shown;

#[cfg(test)]
mod tests;
