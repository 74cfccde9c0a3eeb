//! Whether a disk that ran out of requests looks for more a moment longer before its thread sleeps.
//!
//! A driver that polls, or one on another CPU that has just been interrupted, sends its next request
//! within microseconds of an answer. A sleep in between costs both sides more than that: the kick is an
//! exit of the guest, and the thread has to be woken. Where nothing comes, looking is a waste, so that
//! each time it was in vain it is left out for twice as long.

use std::time::{Duration, Instant};

/// Longest poll before the thread sleeps.
const MOMENT: Duration = Duration::from_micros(10);
/// All moments of one turn, in which other devices of the thread wait.
const MOST_OF_A_TURN: Duration = Duration::from_micros(100);
/// Looks in vain double the pause up to two to the power of this.
const MOST_DOUBLINGS: u32 = 6;

/// How often looking has paid.
#[derive(Debug, Default)]
pub(super) struct AdaptivePoll {
    /// Looks in vain, one after the other.
    in_vain: u32,
    /// Occasions to leave out.
    skipped: u32,
}

/// What looking may cost in this turn.
#[derive(Debug)]
pub(super) struct Allowance {
    left: Duration,
}

impl Default for Allowance {
    fn default() -> Self {
        Self {
            left: MOST_OF_A_TURN,
        }
    }
}

impl AdaptivePoll {
    /// Looks until `found` says true or an error, or the moment is over. Whether there was something.
    pub(super) fn try_poll<E>(
        &mut self,
        allowance: &mut Allowance,
        mut found: impl FnMut() -> Result<bool, E>,
    ) -> Result<bool, E> {
        if self.skipped > 0 {
            self.skipped -= 1;
            return Ok(false);
        }
        let moment = MOMENT.min(allowance.left);
        let begun = Instant::now();
        loop {
            let has_found = found()?;
            let spent = begun.elapsed();
            if has_found || spent >= moment {
                allowance.left = allowance.left.saturating_sub(spent);
                self.learn(has_found);
                return Ok(has_found);
            }
            std::hint::spin_loop();
        }
    }

    fn learn(&mut self, has_found: bool) {
        if has_found {
            self.in_vain = 0;
        } else {
            self.in_vain = (self.in_vain + 1).min(MOST_DOUBLINGS);
            self.skipped = (1 << self.in_vain) - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `occasions` a disk looked at, of which none paid.
    fn polls_in_vain(poll: &mut AdaptivePoll, occasions: u32) -> u32 {
        let mut polls = 0;
        for _ in 0..occasions {
            let mut polled = false;
            let found = poll.try_poll(&mut Allowance::default(), || {
                polled = true;
                Ok::<_, ()>(false)
            });
            assert_eq!(found, Ok(false));
            polls += u32::from(polled);
        }
        polls
    }

    #[test]
    fn polling_in_vain_becomes_rare_and_pays_again_at_once() {
        let mut poll = AdaptivePoll::default();
        // 1, then after 1, 3, 7, 15, 31 and always 63 others.
        assert_eq!(polls_in_vain(&mut poll, 64), 6);
        assert_eq!(polls_in_vain(&mut poll, 640), 10);
        while poll.skipped > 0 {
            polls_in_vain(&mut poll, 1);
        }
        let yes = || Ok::<_, ()>(true);
        assert_eq!(poll.try_poll(&mut Allowance::default(), yes), Ok(true));
        assert_eq!(poll.try_poll(&mut Allowance::default(), yes), Ok(true));
        assert_eq!(polls_in_vain(&mut poll, 2), 1);
    }

    #[test]
    fn a_turn_has_only_so_much_time_for_it() {
        let mut allowance = Allowance::default();
        for _ in 0..100 {
            let mut poll = AdaptivePoll::default();
            let found = poll.try_poll(&mut allowance, || Ok::<_, ()>(false));
            assert_eq!(found, Ok(false));
        }
        assert_eq!(allowance.left, Duration::ZERO);
    }

    #[test]
    fn what_is_found_at_once_is_found_without_an_allowance() {
        let mut allowance = Allowance {
            left: Duration::ZERO,
        };
        let found = AdaptivePoll::default().try_poll(&mut allowance, || Ok::<_, ()>(true));
        assert_eq!(found, Ok(true));
        let failed = AdaptivePoll::default().try_poll(&mut allowance, || Err("broken"));
        assert_eq!(failed, Err("broken"));
    }
}
