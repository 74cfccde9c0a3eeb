//! Words of nftables and their numbers.

/// A family of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// IPv4 and IPv6.
    Inet,
    /// Frames of bridges.
    Bridge,
}

impl Family {
    pub(super) const fn number(self) -> u8 {
        match self {
            Self::Inet => 1,
            Self::Bridge => 7,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Inet => "inet",
            Self::Bridge => "bridge",
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
    pub(super) const fn number(self) -> u32 {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChainKind {
    Filter,
    Nat,
}

impl ChainKind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Nat => "nat",
        }
    }
}
