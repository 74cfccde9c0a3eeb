//! A work queue: each key waits once, and one that failed waits longer each time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Delay after the first failure; it doubles with each further one.
const FIRST_DELAY: Duration = Duration::from_millis(200);

/// The longest delay.
const LONGEST_DELAY: Duration = Duration::from_secs(120);

/// Keys that wait for work, by the time at which they are due. Times count from any fixed moment.
#[derive(Clone, Debug)]
pub struct WorkQueue<K> {
    due: BTreeMap<K, Duration>,
    /// The same, the first due first: thousands of keys may wait at an agent's start.
    order: BTreeSet<(Duration, K)>,
    failed: BTreeMap<K, Failed>,
    /// Keys that are left alone until a time.
    resting: BTreeMap<K, Duration>,
}

impl<K> Default for WorkQueue<K> {
    fn default() -> Self {
        Self {
            due: BTreeMap::new(),
            order: BTreeSet::new(),
            failed: BTreeMap::new(),
            resting: BTreeMap::new(),
        }
    }
}

/// What is known of a key whose last work failed.
#[derive(Clone, Copy, Debug)]
struct Failed {
    times: u32,
    /// Not before.
    until: Duration,
}

impl<K: Ord + Clone> WorkQueue<K> {
    /// Has work be done for a key: at once, or once it has waited for its last failure or has rested.
    pub fn add(&mut self, key: K, now: Duration) {
        let failed = self.failed.get(&key).map_or(now, |failed| failed.until);
        let resting = self.resting.get(&key).copied().unwrap_or(now);
        self.add_at(key, failed.max(resting).max(now));
    }

    /// Has work be done for a key at a time. One that is due sooner stays so.
    pub fn add_at(&mut self, key: K, at: Duration) {
        match self.due.get(&key) {
            Some(due) if *due <= at => {}
            _ => self.set_due(key, at),
        }
    }

    /// Takes the key that has been due for longest.
    pub fn take(&mut self, now: Duration) -> Option<K> {
        if self.next_due()? > now {
            return None;
        }
        let (_, key) = self.order.pop_first()?;
        self.due.remove(&key);
        self.resting.remove(&key);
        Some(key)
    }

    /// When the next key is due.
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        self.order.first().map(|(due, _)| *due)
    }

    /// Work failed: it is tried again, later each time.
    pub fn retry(&mut self, key: K, now: Duration) {
        let times = self.failed.get(&key).map_or(0, |failed| failed.times);
        let until = now.saturating_add(delay(times));
        let failed = Failed {
            times: times.saturating_add(1),
            until,
        };
        self.failed.insert(key.clone(), failed);
        self.set_due(key, until);
    }

    /// Work succeeded: the next failure counts as the first.
    pub fn forgive(&mut self, key: &K) {
        self.failed.remove(key);
    }

    /// What changes about a key is worked on together, and not before a time.
    pub fn rest(&mut self, key: K, until: Duration) {
        self.resting.insert(key, until);
    }

    /// Work is wanted differently: a key waits neither for its last failure nor until it has rested.
    pub fn hasten(&mut self, key: &K) {
        self.forgive(key);
        self.resting.remove(key);
    }

    fn set_due(&mut self, key: K, at: Duration) {
        if let Some(before) = self.due.insert(key.clone(), at) {
            self.order.remove(&(before, key.clone()));
        }
        self.order.insert((at, key));
    }
}

/// The delay after so many earlier failures.
pub(crate) fn delay(times: u32) -> Duration {
    let factor = 1_u32.checked_shl(times.min(20)).unwrap_or(u32::MAX);
    FIRST_DELAY.saturating_mul(factor).min(LONGEST_DELAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_key_waits_once_and_until_it_is_due() {
        let mut queue = WorkQueue::default();
        queue.add("a", SECOND);
        queue.add("a", SECOND * 2);
        queue.add_at("b", SECOND * 3);
        assert_eq!(queue.take(SECOND / 2), None);
        assert_eq!(queue.take(SECOND), Some("a"));
        assert_eq!(queue.take(SECOND * 2), None);
        assert_eq!(queue.next_due(), Some(SECOND * 3));
    }

    #[test]
    fn a_key_rests_unless_it_is_wanted_differently() {
        let mut queue = WorkQueue::default();
        queue.rest("a", SECOND * 3);
        queue.add("a", SECOND);
        assert_eq!(queue.next_due(), Some(SECOND * 3));
        assert_eq!(queue.take(SECOND * 3), Some("a"));
        queue.add("a", SECOND);
        assert_eq!(queue.take(SECOND), Some("a"));
        queue.rest("a", SECOND * 3);
        queue.add("a", SECOND);
        queue.hasten(&"a");
        queue.add("a", SECOND);
        assert_eq!(queue.take(SECOND), Some("a"));
        assert_eq!(queue.next_due(), None);
    }

    #[test]
    fn failures_delay_a_key_longer_each_time_whoever_adds_it() {
        let mut queue = WorkQueue::default();
        let (mut now, mut last) = (SECOND, Duration::ZERO);
        for _ in 0..30 {
            queue.retry("a", now);
            queue.add("a", now);
            let due = queue.next_due().expect("waits");
            assert!(due - now >= last && due - now <= LONGEST_DELAY);
            last = due - now;
            now = due;
            assert_eq!(queue.take(now), Some("a"));
        }
        assert_eq!(last, LONGEST_DELAY);
        queue.forgive(&"a");
        queue.add("a", now);
        assert_eq!(queue.take(now), Some("a"));
    }
}
