//! More memslots than KVM has.

/// More memslots than the host takes.
#[derive(Debug, thiserror::Error)]
#[error("guest memory needs {needed} memslots, and KVM on this host has {limit}")]
pub struct TooManySlots {
    pub(crate) needed: u32,
    pub(crate) limit: usize,
}
