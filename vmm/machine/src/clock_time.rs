//! Times of the kernel's clocks as numbers.

/// A time as nanoseconds.
pub(crate) fn nanoseconds(time: nix::sys::time::TimeSpec) -> u64 {
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    let rest = u64::try_from(time.tv_nsec()).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}
