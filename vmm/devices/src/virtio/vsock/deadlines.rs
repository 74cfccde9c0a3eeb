//! Deadlines of connections.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// At most one deadline for each number.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    by_time: BTreeSet<(Instant, u64)>,
    by_number: BTreeMap<u64, Instant>,
}

impl Deadlines {
    /// Sets the deadline of `number`, instead of any that it had.
    pub(super) fn set(&mut self, number: u64, at: Instant) {
        self.clear(number);
        self.by_time.insert((at, number));
        self.by_number.insert(number, at);
    }

    /// Forgets the deadline of `number`, if it has one.
    pub(super) fn clear(&mut self, number: u64) {
        if let Some(at) = self.by_number.remove(&number) {
            self.by_time.remove(&(at, number));
        }
    }

    /// Whether `number` has one.
    pub(super) fn has(&self, number: u64) -> bool {
        self.by_number.contains_key(&number)
    }

    /// Forgets all.
    pub(super) fn clear_all(&mut self) {
        self.by_time.clear();
        self.by_number.clear();
    }

    /// The next one.
    pub(super) fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes one that has passed at `now`.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<u64> {
        let (at, number) = *self.by_time.first()?;
        if at > now {
            return None;
        }
        self.clear(number);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn deadlines_come_in_order_and_only_once() {
        let now = Instant::now();
        let after = |seconds| now + Duration::from_secs(seconds);
        let mut deadlines = Deadlines::default();
        deadlines.set(1, after(5));
        deadlines.set(2, after(3));
        deadlines.set(3, after(3));
        deadlines.set(1, after(1));
        deadlines.clear(3);
        deadlines.clear(4);
        assert_eq!(deadlines.next(), Some(after(1)));
        assert_eq!(deadlines.take_due(now), None);
        assert_eq!(deadlines.take_due(after(4)), Some(1));
        assert_eq!(deadlines.take_due(after(4)), Some(2));
        assert_eq!(deadlines.take_due(after(9)), None);
        assert_eq!(deadlines.next(), None);
    }
}
