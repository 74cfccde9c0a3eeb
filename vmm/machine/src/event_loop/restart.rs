//! A guest that is held between two starts.

use std::time::{Duration, Instant};

use crate::guest_event::ResetSource;

/// When and how a guest that is held between two starts goes on.
#[derive(Clone, Copy)]
pub(super) struct Restart {
    /// The machine thread goes on with it then.
    pub(super) at: Instant,
    /// The machine is not as at power-on yet: this reset is to be carried out, by a guest that starts so
    /// long after it.
    pub(super) unfinished: Option<(ResetSource, Duration)>,
}
