//! How long to wait before something that failed is tried again.

use std::time::Duration;

/// The first pause is at most this long.
const FIRST: Duration = Duration::from_secs(1);

/// The pause after failure number `failures`, counted from 1: doubles from one second to `longest`, and lies
/// anywhere between half of that and all of it by `random`, so that nodes which lost the same peer do not come
/// back in one moment.
#[must_use]
pub fn back_off(failures: u32, longest: Duration, random: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(20);
    let whole = FIRST.saturating_mul(1 << doublings).min(longest);
    let half = whole / 2;
    half + half.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_longest_and_are_spread() {
        let longest = Duration::from_secs(60);
        for (failures, whole) in [(0, 1), (1, 1), (2, 2), (5, 16), (7, 60), (u32::MAX, 60)] {
            let whole = Duration::from_secs(whole);
            assert_eq!(back_off(failures, longest, 0), whole / 2);
            assert_eq!(back_off(failures, longest, u32::MAX), whole);
        }
    }

    #[test]
    fn no_pause_is_longer_than_the_longest() {
        let longest = Duration::from_millis(100);
        assert!(back_off(1, longest, u32::MAX) <= longest);
    }
}
