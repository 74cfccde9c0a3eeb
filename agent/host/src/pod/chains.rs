//! What the tables of the pod network have in common.

use crate::netfilter::{Base, ChainKind, Hook};

/// The name of our tables.
pub(super) const TABLE: &str = "kvmlet";

pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const ICMPV6: u8 = 58;

/// Where a chain hooks in; it accepts or drops what no rule of it decides.
pub(super) fn base(kind: ChainKind, hook: Hook, priority: i32, drops: bool) -> Base {
    Base {
        kind,
        hook,
        priority,
        drops,
    }
}
