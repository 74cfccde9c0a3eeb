//! How long a guest that is being ended still has.

use std::time::Duration;

use proto_node::node::Object;
use proto_node::vmi::VirtualMachineInstance;
use serde_json::Value;

use crate::output::note;
use crate::state::{TERMINATING, as_vmi};
use crate::text::text;
use crate::time::seconds_until;

/// Interval between lines on the time left.
const PRINT_EVERY: Duration = Duration::from_secs(5);

/// The end of the grace period, by the words of the condition.
pub fn deadline_of(message: &str) -> Option<jiff::Timestamp> {
    message.rsplit(' ').next()?.parse().ok()
}

/// What is left, such as `12 s left`; nothing once it is over.
pub fn left(message: &str) -> Option<String> {
    let seconds = seconds_until(deadline_of(message)?);
    (seconds > 0).then(|| format!("{seconds} s left"))
}

/// The same of an object as JSON.
pub fn left_of(object: &Value) -> Option<String> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    let ends = |condition: &&Value| {
        condition["type"] == TERMINATING && condition["reason"] == "GracePeriod"
    };
    left(&text(conditions.iter().find(ends)?, "/message"))
}

/// Prints on standard error how long a guest still has, while somebody waits for its end.
#[derive(Default)]
pub struct Countdown {
    deadline: std::cell::Cell<Option<jiff::Timestamp>>,
}

impl Countdown {
    /// Learns from the object as it is now.
    pub fn learn(&self, object: Option<&Object>) {
        let deadline = object.and_then(as_vmi).and_then(of_vmi);
        self.deadline.set(deadline);
    }

    /// Prints the time left again and again; never ends.
    pub async fn run(&self, name: &str) -> ! {
        let mut last = None;
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let Some(deadline) = self.deadline.get() else {
                continue;
            };
            let seconds = seconds_until(deadline);
            let every = i64::try_from(PRINT_EVERY.as_secs()).unwrap_or(1);
            let is_due = last.is_none_or(|shown: i64| shown - seconds >= every || shown < seconds);
            if !is_due && (seconds > 0 || last == Some(0)) {
                continue;
            }
            last = Some(seconds);
            note(&if seconds > 0 {
                format!("{name}: the guest has {seconds} s left to shut itself down")
            } else {
                format!("{name}: its time is over; the guest is ended by force")
            });
        }
    }
}

fn of_vmi(vmi: &VirtualMachineInstance) -> Option<jiff::Timestamp> {
    let conditions = &vmi.status.as_ref()?.conditions;
    let condition = conditions
        .iter()
        .find(|condition| condition.r#type == TERMINATING)?;
    deadline_of(&condition.message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_time_left_is_printed_until_it_is_over() {
        let at = |seconds: i64| {
            let at = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
            let message = format!("The guest is ended by force at {at:.0}");
            let condition =
                json!({"type": TERMINATING, "reason": "GracePeriod", "message": message});
            left_of(&json!({"status": {"conditions": [{"type": "Ready"}, condition]}}))
        };
        let left = at(100).unwrap_or_default();
        assert!(left == "100 s left" || left == "99 s left", "{left}");
        assert_eq!(at(-3), None);
        assert_eq!(left_of(&json!({"status": {}})), None);
        assert_eq!(deadline_of("no time in here"), None);
    }
}
