//! The atomics that [`bits`](super::bits) uses. `interleavings` compiles it with loom's instead.

pub(super) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
