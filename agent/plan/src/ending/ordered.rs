//! Reason and message of an end that the node itself has asked for.

use crate::orders::StopCause;
use crate::record::{Phase, Record};

/// Reason of a VMI that a drain ended; the manifest directory makes it anew once the node takes guests.
const EVICTED: &str = "Evicted";

/// Reason of a VMI that the end of the node ended.
pub(super) const NODE_SHUTDOWN: &str = "NodeShutdown";

/// What a drain or the end of the node calls an end that it asked for. Whatever else befell the guest meanwhile
/// keeps its name.
pub(crate) fn as_ordered(record: &Record, end: (Phase, String, String)) -> (Phase, String, String) {
    let Some(stop) = record.orders.stop else {
        return end;
    };
    let (phase, reason, message) = end;
    let progress = record.report.stop.as_ref();
    let was_forced = progress.is_some_and(|progress| progress.hard_since.is_some());
    let is_ours = phase == Phase::Succeeded || matches!(&*reason, "Stopped" | "NodeRebooted");
    match stop.cause {
        StopCause::Drain if is_ours && reason != "NodeRebooted" => {
            let message = format!("The node was drained. {message}");
            (phase, String::from(EVICTED), message)
        }
        StopCause::NodeShutdown if is_ours => {
            let phase = if was_forced { Phase::Failed } else { phase };
            let message = format!("The node went down. {message}");
            (phase, String::from(NODE_SHUTDOWN), message)
        }
        _ => (phase, reason, message),
    }
}
