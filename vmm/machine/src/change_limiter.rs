//! How often a guest may have the host do what costs more than the guest's own time. Memory that is shown and
//! hidden: each change of a memslot has the host wait for all vCPUs of the guest, and makes it forget the
//! guest's page tables. Interrupts that are routed anew.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use vmm_devices::virtio::rate::{RateLimit, TokenBucket};

/// SeaBIOS makes some thirty changes at each start, OVMF two for each variable that it writes.
const LIMIT: RateLimit = RateLimit {
    per_second: 500,
    burst: 2000,
};

/// Each change of a route has the host wait for those who read the old table. Linux sets each vector up
/// with three changes, and moves one to another CPU with two.
const ROUTES: RateLimit = RateLimit {
    per_second: 1000,
    burst: 8192,
};

/// Holds back who makes too many changes.
pub(crate) struct ChangeLimiter {
    started: Instant,
    bucket: Mutex<Option<TokenBucket>>,
}

impl Default for ChangeLimiter {
    fn default() -> Self {
        Self::new(LIMIT)
    }
}

impl ChangeLimiter {
    /// Of routes of interrupts.
    pub(crate) fn of_routes() -> Self {
        Self::new(ROUTES)
    }

    pub(crate) fn new(limit: RateLimit) -> Self {
        Self {
            started: Instant::now(),
            bucket: Mutex::new(TokenBucket::new(limit, 0)),
        }
    }

    /// Waits until `changes` more can be made; that is no longer than those before it took too many.
    pub(crate) fn wait(&self, changes: u64) {
        while let Some(left) = self.take(changes) {
            // May end early.
            std::thread::park_timeout(left);
        }
    }

    /// Takes them, or says how long to wait.
    fn take(&self, changes: u64) -> Option<Duration> {
        // Whole after each call.
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = bucket.as_mut()?;
        let now = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        match bucket.wait_ns(now) {
            0 => {
                bucket.take(changes);
                None
            }
            left => Some(Duration::from_nanos(left)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_firmware_needs_is_at_once_and_a_storm_waits() {
        let limiter = ChangeLimiter::new(RateLimit {
            per_second: 1000,
            burst: 100,
        });
        assert_eq!(limiter.take(99), None);
        assert_eq!(limiter.take(50), None);
        let left = limiter.take(1).unwrap();
        assert!(left > Duration::from_millis(20), "{left:?}");
        limiter.wait(1);
        assert!(limiter.started.elapsed() >= Duration::from_millis(20));
    }
}
