//! A token bucket: so much a second, and so much at once.
//!
//! Arithmetic only: whoever uses it brings the time.

/// Tokens are counted in billionths, so that a rate a second is a whole number a nanosecond.
const NANO: i128 = 1_000_000_000;

/// A limit. Anything goes while `per_second` is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimit {
    /// Tokens that come in a second; 0 for no limit.
    pub per_second: u64,
    /// Tokens that are kept for later at most; 0 for a tenth of a second's.
    pub burst: u64,
}

/// A bucket, full at first.
///
/// It gives as long as there is anything in it, and may run into debt by one request: so requests
/// larger than the bucket pass, too. In any time of `t` seconds it gives less than
/// `burst + per_second * t` and one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    per_second: u64,
    burst: i128,
    /// In billionths of a token; negative is debt.
    level: i128,
    /// Nanoseconds of the user's clock at which `level` was right.
    at_ns: u64,
}

impl TokenBucket {
    /// A full bucket at `now_ns`, or nothing where there is no limit.
    #[must_use]
    pub fn new(limit: RateLimit, now_ns: u64) -> Option<Self> {
        if limit.per_second == 0 {
            return None;
        }
        let kept = match limit.burst {
            0 => (limit.per_second / 10).max(1),
            burst => burst,
        };
        let burst = i128::from(kept) * NANO;
        Some(Self {
            per_second: limit.per_second,
            burst,
            level: burst,
            at_ns: now_ns,
        })
    }

    /// Nanoseconds until something can be taken; 0 for now. A clock that goes back stands still.
    #[must_use]
    pub fn wait_ns(&mut self, now_ns: u64) -> u64 {
        let elapsed = now_ns.saturating_sub(self.at_ns);
        self.at_ns = self.at_ns.max(now_ns);
        let gained = i128::from(elapsed) * i128::from(self.per_second);
        self.level = (self.level + gained).min(self.burst);
        if self.level > 0 {
            return 0;
        }
        let missing = 1 - self.level;
        let per_ns = i128::from(self.per_second);
        u64::try_from((missing + per_ns - 1) / per_ns).unwrap_or(u64::MAX)
    }

    /// Takes `tokens`, into debt if need be.
    pub fn take(&mut self, tokens: u64) {
        self.level = self.level.saturating_sub(i128::from(tokens) * NANO);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bucket(per_second: u64, burst: u64) -> TokenBucket {
        TokenBucket::new(RateLimit { per_second, burst }, 0).unwrap()
    }

    #[test]
    fn no_rate_is_no_limit() {
        assert_eq!(TokenBucket::new(RateLimit::default(), 0), None);
    }

    #[test]
    fn a_burst_passes_at_once_and_the_rest_at_the_rate() {
        let mut bucket = bucket(1000, 3);
        for _ in 0..3 {
            assert_eq!(bucket.wait_ns(5), 0);
            bucket.take(1);
        }
        // Any part of a token will do: the next nanosecond brings a thousand billionths.
        assert_eq!(bucket.wait_ns(5), 1);
        bucket.take(1);
        assert_eq!(bucket.wait_ns(5), 1_000_001);
        assert_eq!(bucket.wait_ns(1_000_006), 0);
    }

    #[test]
    fn a_clock_that_goes_back_gives_nothing() {
        let mut bucket = bucket(1, 1);
        assert_eq!(bucket.wait_ns(1000), 0);
        bucket.take(2);
        let wait = bucket.wait_ns(1000);
        assert_eq!(bucket.wait_ns(0), wait);
        assert_eq!(bucket.wait_ns(1000), wait);
    }

    proptest! {
        #[test]
        fn never_more_than_burst_rate_and_one_request(
            per_second in 1u64..1 << 40,
            burst in 0u64..1 << 40,
            requests in prop::collection::vec((0u64..1 << 30, 0u64..2_000_000_000), 1..60),
        ) {
            let limit = RateLimit { per_second, burst };
            let mut bucket = TokenBucket::new(limit, 0).unwrap();
            let kept = if burst == 0 { (per_second / 10).max(1) } else { burst };
            let (mut now, mut given, mut largest) = (0u64, 0u128, 0u64);
            for (tokens, pause) in requests {
                now += pause;
                if bucket.wait_ns(now) == 0 {
                    bucket.take(tokens);
                    given += u128::from(tokens);
                    largest = largest.max(tokens);
                }
                let earned = u128::from(per_second) * u128::from(now) / 1_000_000_000;
                prop_assert!(given <= u128::from(kept) + earned + 1 + u128::from(largest));
            }
        }

        #[test]
        fn after_the_wait_it_gives_and_just_before_it_does_not(
            per_second in 1u64..1 << 50, tokens in 1u64..1 << 50,
        ) {
            let mut bucket = bucket(per_second, 1);
            prop_assert_eq!(bucket.wait_ns(0), 0);
            bucket.take(tokens);
            let wait = bucket.wait_ns(0);
            prop_assert!(wait > 0);
            prop_assert!(bucket.wait_ns(wait - 1) > 0);
            prop_assert_eq!(bucket.wait_ns(wait), 0);
        }

        #[test]
        fn nothing_overflows(per_second: u64, burst: u64, steps in prop::collection::vec(any::<(u64, u64)>(), 1..20)) {
            if let Some(mut bucket) = TokenBucket::new(RateLimit { per_second, burst }, 0) {
                for (now, tokens) in steps {
                    if bucket.wait_ns(now) == 0 {
                        bucket.take(tokens);
                    }
                }
            }
        }
    }
}
