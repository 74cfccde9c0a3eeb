//! The one place where clocks are read, and how times look in objects.

use std::time::{Duration, SystemTime};

use agent_plan::{BootId, BootTime, Millis, Record, Timestamp};

/// Wall clock.
pub(crate) fn now() -> Timestamp {
    Timestamp(jiff::Timestamp::now().as_millisecond())
}

/// `CLOCK_BOOTTIME`: nobody sets it, and it goes on while the node sleeps. The end of time where the kernel has no
/// such clock: what waits for it is over then.
pub(crate) fn boot_time() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)
        .map_or(Duration::MAX, Duration::from)
}

/// Now, as precisely as the node's clock tells.
pub(crate) fn time_of_day() -> SystemTime {
    SystemTime::now()
}

/// `CLOCK_MONOTONIC` in nanoseconds, in which VMMs tell times, too; 0 where the kernel has no such clock.
pub(crate) fn monotonic_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    now.map_or(0, |now| {
        u64::try_from(Duration::from(now).as_nanos()).unwrap_or(u64::MAX)
    })
}

/// The same as a moment of this boot.
pub(crate) fn moment(boot_id: &BootId, at: Duration) -> BootTime {
    BootTime {
        boot_id: boot_id.clone(),
        at: Millis(i64::try_from(at.as_millis()).unwrap_or(i64::MAX)),
    }
}

/// Has a record follow the wall clock, if that was set; the answer is the time that it was compared with. Due before
/// any time is read from a record, or written into it.
pub(crate) fn follow(record: &mut Record, boot_id: &BootId) -> Timestamp {
    let now = now();
    record.follow_clock(now, &moment(boot_id, boot_time()));
    now
}

/// As Kubernetes writes times: RFC 3339, whole seconds, UTC.
pub(crate) fn rfc3339(at: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(at.0)
        .map(|at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
        .unwrap_or_default()
}

/// Reads a time of an object; nothing when it is empty or malformed.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    text.parse::<jiff::Timestamp>()
        .ok()
        .map(|at| Timestamp(at.as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_look_as_in_kubernetes() {
        assert_eq!(
            rfc3339(Timestamp(1_700_000_000_123)),
            "2023-11-14T22:13:20Z"
        );
        assert_eq!(
            parse("2023-11-14T22:13:20Z"),
            Some(Timestamp(1_700_000_000_000))
        );
        assert_eq!(parse(""), None);
    }
}
