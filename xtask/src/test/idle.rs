//! How much of this machine's CPUs nobody uses, or only those who give way.

use std::fs;
use std::time::Duration;

use anyhow::Context;

/// The time of all CPUs since the machine's start, in clock ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ticks {
    idle: u64,
    all: u64,
}

/// How many CPUs were idle during `period`, which it waits for: between 0 and their number.
///
/// # Errors
/// When `/proc/stat` is not as proc(5) says.
pub(super) fn cpus(period: Duration) -> anyhow::Result<f64> {
    let before = now()?;
    // How long is measured.
    std::thread::sleep(period);
    Ok(between(before, now()?) * std::thread::available_parallelism()?.get() as f64)
}

fn now() -> anyhow::Result<Ticks> {
    let stat = fs::read_to_string("/proc/stat").context("/proc/stat")?;
    ticks(&stat).with_context(|| format!("/proc/stat begins {:?}", stat.lines().next()))
}

/// The first line: `cpu`, user, nice, system, idle, iowait, irq, softirq, steal and two that are counted already. A CPU
/// that waits for a disk has nothing to do, and what is nice(1) gives way.
fn ticks(stat: &str) -> Option<Ticks> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> = fields
        .split_whitespace()
        .take(8)
        .map(str::parse)
        .collect::<Result<_, _>>()
        .ok()?;
    Some(Ticks {
        idle: fields.get(1)? + fields.get(3)? + fields.get(4)?,
        all: fields.iter().sum(),
    })
}

/// The part of the time between them that was idle, from 0 to 1.
fn between(before: Ticks, after: Ticks) -> f64 {
    let all = after.all.saturating_sub(before.all).max(1);
    after.idle.saturating_sub(before.idle) as f64 / all as f64
}

#[cfg(test)]
mod tests {
    use super::{Ticks, between, ticks};

    #[test]
    fn time_that_nobody_used_is_read_as_proc_has_it() {
        let stat = "cpu  90 10 50 690 100 10 20 30 5 0\ncpu0 1 2 3 4\n";
        let before = ticks(stat).unwrap();
        assert_eq!(
            before,
            Ticks {
                idle: 800,
                all: 1000
            }
        );
        let after = Ticks {
            idle: 830,
            all: 1040,
        };
        assert!((between(before, after) - 0.75).abs() < 1e-9);
        assert!(between(after, after).abs() < 1e-9);
        assert_eq!(ticks("intr 5"), None);
    }
}
