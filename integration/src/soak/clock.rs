//! What time the steps of a campaign take.

use std::time::{Duration, Instant};

/// Tells each step and its time.
pub(super) struct Clock<'a> {
    last: Instant,
    report: &'a mut dyn FnMut(&str, Duration),
}

impl<'a> Clock<'a> {
    /// The first step begins now.
    pub(super) fn new(report: &'a mut dyn FnMut(&str, Duration)) -> Self {
        Self {
            last: Instant::now(),
            report,
        }
    }

    /// A step is done, and the next one begins.
    pub(super) fn done(&mut self, step: &str) {
        (self.report)(step, self.last.elapsed());
        self.last = Instant::now();
    }
}
