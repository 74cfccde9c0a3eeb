//! Moments, on a clock that nobody sets, and what time of day they were.

use std::time::{Duration, SystemTime};

use crate::clock;

/// A moment, by `CLOCK_MONOTONIC` as VMMs tell theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    /// Of so many nanoseconds.
    pub(super) const fn of_ns(ns: u64) -> Self {
        Self(ns)
    }

    pub(super) fn now() -> Self {
        Self(clock::monotonic_ns())
    }
}

/// Tells the times of day of one trace: they keep their order and distances even when the node's clock is set
/// meanwhile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calendar {
    moment: Moment,
    time: SystemTime,
}

impl Calendar {
    /// By the node's clock as it is now.
    pub(super) fn begin() -> Self {
        Self {
            moment: Moment::now(),
            time: clock::time_of_day(),
        }
    }

    /// The time of day of a moment, before or after the calendar's beginning.
    pub(super) fn time(&self, of: Moment) -> SystemTime {
        let after = of.0.checked_sub(self.moment.0).map(Duration::from_nanos);
        let before = Duration::from_nanos(self.moment.0.saturating_sub(of.0));
        let time = match after {
            Some(after) => self.time.checked_add(after),
            None => self.time.checked_sub(before),
        };
        time.unwrap_or(self.time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_keep_their_distances() {
        let calendar = Calendar {
            moment: Moment(1_000),
            time: SystemTime::UNIX_EPOCH + Duration::from_secs(9),
        };
        let at = |ns| {
            calendar
                .time(Moment(ns))
                .duration_since(SystemTime::UNIX_EPOCH)
        };
        assert_eq!(at(1_250).ok(), Some(Duration::new(9, 250)));
        assert_eq!(at(900).ok(), Some(Duration::new(8, 999_999_900)));
    }
}
