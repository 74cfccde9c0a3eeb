//! The order of events.

use serde_json::Value;

use crate::text::text;

/// Where an event stands among others, the oldest first. Its time is in whole seconds; within one, what was
/// written later has the higher version.
pub fn order(event: &Value) -> (String, u64) {
    let version = text(event, "/metadata/resourceVersion");
    (text(event, "/lastTimestamp"), version.parse().unwrap_or(0))
}
