//! Rate limits of a disk: bytes and requests, of reads, of writes, and of both together.

use crate::virtio::rate::{RateLimit, TokenBucket};

/// Six limits, each of which may be none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskLimits {
    /// Bytes read and written.
    pub total_bytes: RateLimit,
    /// Bytes read.
    pub read_bytes: RateLimit,
    /// Bytes written.
    pub write_bytes: RateLimit,
    /// Requests of any kind.
    pub total_requests: RateLimit,
    /// Reads.
    pub read_requests: RateLimit,
    /// Everything that is no read.
    pub write_requests: RateLimit,
}

/// What a request costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) is_read: bool,
    /// Bytes moved.
    pub(super) bytes: u64,
}

/// Bytes and requests of one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    bytes: Option<TokenBucket>,
    requests: Option<TokenBucket>,
}

impl Pair {
    fn new(bytes: RateLimit, requests: RateLimit, now_ns: u64) -> Self {
        Self {
            bytes: TokenBucket::new(bytes, now_ns),
            requests: TokenBucket::new(requests, now_ns),
        }
    }

    fn wait_ns(&mut self, now_ns: u64) -> u64 {
        let buckets = self.bytes.iter_mut().chain(&mut self.requests);
        buckets
            .map(|bucket| bucket.wait_ns(now_ns))
            .max()
            .unwrap_or(0)
    }

    fn take(&mut self, bytes: u64) {
        if let Some(bucket) = &mut self.bytes {
            bucket.take(bytes);
        }
        if let Some(bucket) = &mut self.requests {
            bucket.take(1);
        }
    }
}

/// The limits at work.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limiter {
    total: Pair,
    read: Pair,
    write: Pair,
    /// Anything is limited.
    pub(super) is_on: bool,
}

impl Limiter {
    /// All buckets full at `now_ns`.
    pub(super) fn new(limits: DiskLimits, now_ns: u64) -> Self {
        Self {
            total: Pair::new(limits.total_bytes, limits.total_requests, now_ns),
            read: Pair::new(limits.read_bytes, limits.read_requests, now_ns),
            write: Pair::new(limits.write_bytes, limits.write_requests, now_ns),
            is_on: limits != DiskLimits::default(),
        }
    }

    /// Takes what a request costs from all buckets that it concerns, or, when one has nothing, from
    /// none.
    ///
    /// # Errors
    /// Nanoseconds until it can be tried again.
    pub(super) fn admit(&mut self, cost: Cost, now_ns: u64) -> Result<(), u64> {
        let one = if cost.is_read {
            &mut self.read
        } else {
            &mut self.write
        };
        match one.wait_ns(now_ns).max(self.total.wait_ns(now_ns)) {
            0 => {
                one.take(cost.bytes);
                self.total.take(cost.bytes);
                Ok(())
            }
            wait_ns => Err(wait_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(per_second: u64, burst: u64) -> RateLimit {
        RateLimit { per_second, burst }
    }

    fn read(bytes: u64) -> Cost {
        Cost {
            is_read: true,
            bytes,
        }
    }

    fn write(bytes: u64) -> Cost {
        Cost {
            is_read: false,
            bytes,
        }
    }

    #[test]
    fn directions_are_limited_alone_and_together() {
        let limits = DiskLimits {
            total_requests: limit(1, 3),
            read_requests: limit(1, 1),
            write_bytes: limit(1, 100),
            ..DiskLimits::default()
        };
        let mut limiter = Limiter::new(limits, 0);
        assert_eq!(limiter.admit(read(1 << 30), 0), Ok(()));
        assert!(limiter.admit(read(1), 0).is_err());
        // What was refused cost nothing: two requests are left.
        assert_eq!(limiter.admit(write(99), 0), Ok(()));
        assert_eq!(limiter.admit(write(99), 0), Ok(()));
        assert!(limiter.admit(write(0), 0).is_err());
        assert!(limiter.admit(write(0), 99_000_000_000).is_ok());
    }

    #[test]
    fn without_limits_everything_passes() {
        let mut limiter = Limiter::new(DiskLimits::default(), 0);
        assert!(!limiter.is_on);
        assert_eq!(limiter.admit(write(u64::MAX), 0), Ok(()));
        assert_eq!(limiter.admit(write(u64::MAX), 0), Ok(()));
    }
}
