//! Points in time and spans, as the planner sees them: plain numbers that the caller passes in.

use serde::{Deserialize, Serialize};

/// A point in time: milliseconds since 1970-01-01T00:00:00Z.
///
/// Wall-clock time, because people read it. It can be set: see [`Record::follow_clock`](crate::Record::follow_clock).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

/// A span of time in milliseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Millis(pub i64);

impl Timestamp {
    /// This point in time, `span` later.
    #[must_use]
    pub const fn plus(self, span: Millis) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// As RFC 3339 has it, in whole seconds and UTC.
    #[must_use]
    pub fn rfc3339(self) -> String {
        agent_domain::rfc3339(self.0.div_euclid(1000))
    }

    /// How long it is from `earlier` until this; zero when the clock was set back in between.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Millis {
        let span = self.0.saturating_sub(earlier.0);
        Millis(if span < 0 { 0 } else { span })
    }
}

impl Millis {
    /// A span of whole seconds.
    #[must_use]
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_whole_seconds() {
        assert_eq!(Timestamp(1999).rfc3339(), "1970-01-01T00:00:01Z");
        assert_eq!(Timestamp(-1).rfc3339(), "1969-12-31T23:59:59Z");
    }
}
