//! Chains.

use super::expression::Rule;
use super::kinds::{ChainKind, Hook};

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
