//! A point in time, by a clock that nobody sets and by the date.

/// A point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// From any fixed moment, by a clock that nobody sets.
    pub elapsed: std::time::Duration,
    /// Seconds since 1970, for dates in objects.
    pub date: i64,
}

impl Moment {
    /// The date as objects have it.
    pub(super) fn text(self) -> String {
        agent_domain::rfc3339(self.date)
    }
}
