//! Loom's atomics, in place of std's.

pub(super) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
