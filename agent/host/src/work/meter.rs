//! How far work is, and how fast it goes.

use std::time::{Duration, Instant};

use agent_plan::Progress;

/// Bytes are counted over spans of at least this before a rate is drawn from them.
const SPAN: Duration = Duration::from_secs(1);

/// Counts bytes.
#[derive(Debug)]
pub(super) struct Meter {
    progress: Progress,
    /// Where the present span began.
    span: Option<(Instant, u64)>,
}

impl Meter {
    pub(super) fn new(reason: &str, what: &str) -> Self {
        Self {
            progress: Progress {
                reason: reason.to_owned(),
                what: what.to_owned(),
                ..Progress::default()
            },
            span: None,
        }
    }

    pub(super) fn is_of(&self, reason: &str, what: &str) -> bool {
        self.progress.reason == reason && self.progress.what == what
    }

    pub(super) fn count(&mut self, done: u64, total: u64, now: Instant) {
        // Bytes that are counted anew belong to another attempt.
        let span = self.span.filter(|(_, from)| *from <= done);
        let (since, from) = *self.span.insert(span.unwrap_or((now, done)));
        let span = now.saturating_duration_since(since);
        if span >= SPAN {
            let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
            let rate = (done - from).saturating_mul(1000) / millis;
            let before = self.progress.bytes_per_second;
            // A span weighs as much as all before it.
            self.progress.bytes_per_second = match before {
                0 => rate,
                before => before / 2 + rate / 2,
            };
            self.span = Some((now, done));
        }
        self.progress.done_bytes = done;
        self.progress.total_bytes = total;
    }

    pub(super) fn progress(&self) -> Progress {
        self.progress.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_late() {
        let mut meter = Meter::new("Pulling", "a");
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        meter.count(1000, 9000, at(0));
        assert_eq!(meter.progress().bytes_per_second, 0);
        meter.count(3000, 9000, at(2));
        assert_eq!(meter.progress().bytes_per_second, 1000);
        meter.count(3000, 9000, at(3));
        assert_eq!(meter.progress().bytes_per_second, 500);
        meter.count(10, 9000, at(4));
        assert_eq!(meter.progress().bytes_per_second, 500, "another attempt");
        assert_eq!(meter.progress().done_bytes, 10);
    }
}
