//! Bounds of what is read and answered.

/// Longest answer, and longest request that is read: what fits an Ethernet frame behind the headers of IPv4 and UDP.
pub const MAX_BYTES: usize = 1472;
