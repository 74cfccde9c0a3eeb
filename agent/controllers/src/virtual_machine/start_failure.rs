//! Starts that fail before the guest runs: each makes the next one wait longer, as KubeVirt has it.

use agent_domain::{RunStrategy, parse_rfc3339, rfc3339, spread};
use agent_objects::Object;
use proto_node::vmi::{VirtualMachineStartFailure as StartFailure, VirtualMachineStatus};

use super::view::{has_run, is_final};

/// The wait after the first failure, in seconds; after the n-th it is n² times as long.
const FIRST: u64 = 10;

/// The longest wait.
const LONGEST: u64 = 300;

/// The failures after a round.
pub(super) fn count(
    before: Option<&StartFailure>,
    vmi: Option<&Object>,
    strategy: RunStrategy,
    date: i64,
) -> Option<StartFailure> {
    if vmi.is_some_and(has_run) || !strategy.starts_by_itself() {
        return None;
    }
    let Some(failed) = vmi.filter(|vmi| is_final(vmi)) else {
        return before.cloned();
    };
    let uid = &failed.metadata.uid;
    let known = before.is_some_and(|before| before.last_failed_vmi_uid == *uid);
    if known {
        return before.cloned();
    }
    let times = before.map_or(0, |before| before.consecutive_fail_count);
    let times = times.saturating_add(1);
    let wait = wait_seconds(times, uid);
    Some(StartFailure {
        consecutive_fail_count: times,
        last_failed_vmi_uid: uid.clone(),
        retry_after_timestamp: rfc3339(date.saturating_add_unsigned(wait)),
    })
}

/// How long to wait after so many failures: the base, and up to half of it more, so that machines which failed together
/// do not start together.
fn wait_seconds(times: i32, uid: &str) -> u64 {
    let times = u64::try_from(times).unwrap_or(1).max(1);
    let base = FIRST
        .saturating_mul(times.saturating_mul(times))
        .min(LONGEST);
    let more = spread(&["start-back-off", uid], base / 2 + 1);
    base.saturating_add(more).min(LONGEST)
}

/// Seconds until the machine may be started; 0 at once. A clock that was set back does not make it longer than it can be.
pub(super) fn seconds_left(status: &VirtualMachineStatus, date: i64) -> u64 {
    let failure = status.start_failure.as_ref();
    let until = failure.and_then(|failure| parse_rfc3339(&failure.retry_after_timestamp));
    let left = until.map_or(0, |until| until.saturating_sub(date));
    u64::try_from(left).unwrap_or(0).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_with_the_square_of_the_failures_up_to_five_minutes() {
        for (times, least) in [
            (0, 10),
            (1, 10),
            (2, 40),
            (3, 90),
            (4, 160),
            (5, 250),
            (6, 300),
            (i32::MAX, 300),
        ] {
            for uid in ["a", "b", "c", "d"] {
                let wait = wait_seconds(times, uid);
                assert!(
                    wait >= least && wait <= (least + least / 2).min(300),
                    "{times}: {wait}"
                );
            }
        }
        assert_ne!(wait_seconds(4, "a"), wait_seconds(4, "b"));
    }
}
