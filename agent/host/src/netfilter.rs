//! Rules of nftables, over netlink: an encoder of as much of it as the pod network needs.
//!
//! Everything is sent in transactions, so that a table is always the old or the new one and never in between. What
//! the kernel made of it is compared with `nft -j` in tests; at run time no such program is needed.

mod attributes;
mod batch;
mod chain;
mod dump;
mod expression;
mod kinds;
mod present;
mod restore;
mod set;
mod table;
#[cfg(test)]
pub(crate) mod tests;
mod watch;

pub(crate) use self::batch::{Batch, Netfilter, TableName};
pub(crate) use self::chain::{Base, Chain};
pub(crate) use self::expression::{Comparison, Part, Rule};
pub(crate) use self::kinds::{ChainKind, Family, Hook, Verdict};
pub(crate) use self::restore::Difference;
pub use self::restore::Restored;
pub(crate) use self::set::{Field, Set, Value};
pub(crate) use self::table::Table;
pub(crate) use self::watch::RuleWatch;
