//! How soon a guest that resets itself may start again.
//!
//! A kernel that faults at once would otherwise burn a host CPU for ever. A guest that ran for a
//! while starts again at once; one that did not waits longer each time.

use std::time::Duration;

/// A guest that ran this long is not in a loop.
const HEALTHY: Duration = Duration::from_secs(10);
/// Resets that cost nothing: firmware and installers reset a few times in a row.
const FREE: u32 = 5;
const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(5);
/// Triple faults right after each other that show that a reset does not help.
const HOPELESS: u32 = 10;

/// Counts resets that came too soon.
#[derive(Debug, Default)]
pub(crate) struct ResetBackoff {
    in_a_row: u32,
}

/// What to do about a reset.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ResetDecision {
    /// Start again after this time.
    After(Duration),
    /// Give up: the guest only faults.
    Hopeless,
}

impl ResetBackoff {
    /// A reset after the guest ran for `ran`.
    pub(crate) fn on_reset(&mut self, ran: Duration, triple_fault: bool) -> ResetDecision {
        if ran >= HEALTHY {
            self.in_a_row = 0;
        }
        self.in_a_row += 1;
        if triple_fault && self.in_a_row >= HOPELESS {
            return ResetDecision::Hopeless;
        }
        let Some(late) = self.in_a_row.checked_sub(FREE + 1) else {
            return ResetDecision::After(Duration::ZERO);
        };
        let delay = FIRST_DELAY.saturating_mul(1 << late.min(16));
        ResetDecision::After(delay.min(LONGEST_DELAY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(1);

    #[test]
    fn a_loop_slows_down_and_is_bounded() {
        let mut backoff = ResetBackoff::default();
        for _ in 0..5 {
            assert_eq!(
                backoff.on_reset(SOON, false),
                ResetDecision::After(Duration::ZERO)
            );
        }
        assert_eq!(
            backoff.on_reset(SOON, false),
            ResetDecision::After(FIRST_DELAY)
        );
        for _ in 0..100 {
            backoff.on_reset(SOON, false);
        }
        assert_eq!(
            backoff.on_reset(SOON, false),
            ResetDecision::After(LONGEST_DELAY)
        );
    }

    #[test]
    fn a_guest_that_ran_for_a_while_starts_again_at_once() {
        let mut backoff = ResetBackoff::default();
        for _ in 0..50 {
            backoff.on_reset(SOON, false);
        }
        assert_eq!(
            backoff.on_reset(HEALTHY, false),
            ResetDecision::After(Duration::ZERO)
        );
    }

    #[test]
    fn triple_faults_without_end_are_hopeless() {
        let mut backoff = ResetBackoff::default();
        let decisions: Vec<_> = (0..HOPELESS)
            .map(|_| backoff.on_reset(SOON, true))
            .collect();
        assert_eq!(decisions.last(), Some(&ResetDecision::Hopeless));
    }
}
