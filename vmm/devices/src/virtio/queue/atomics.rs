//! The atomics that [`notifications`](super::notifications) uses. `interleavings` compiles it with loom's instead.

pub(super) use std::sync::atomic::{Ordering, fence};
