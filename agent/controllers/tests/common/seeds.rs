//! Which schedules a property is tried with.

use std::ops::Range;

/// Schedules of a campaign, as `FROM..TO`.
const VARIABLE: &str = "KVMLET_SEEDS";

/// The seeds from 0 on, or those that a campaign asks for.
pub fn seeds(few: u64) -> Range<u64> {
    let Ok(text) = std::env::var(VARIABLE) else {
        return 0..few;
    };
    let bounds = text
        .split_once("..")
        .map(|(from, to)| (from.parse(), to.parse()));
    match bounds {
        Some((Ok(from), Ok(to))) => from..to,
        _ => panic!("{VARIABLE}={text}: FROM..TO was expected"),
    }
}
