//! `[shutdown]`: how long the node waits for its guests when it goes down.

use std::time::Duration;

use serde::Deserialize;

/// `[shutdown]`
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Shutdown {
    /// The longest grace period that any guest gets then.
    longest_grace_seconds: u32,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self {
            longest_grace_seconds: 120,
        }
    }
}

impl Shutdown {
    /// The setting that is out of range, its value and the rule.
    pub(super) fn fault(self) -> Option<(&'static str, u32, &'static str)> {
        let seconds = self.longest_grace_seconds;
        let setting = "shutdown.longest_grace_seconds";
        // systemd itself gives a shutdown half an hour.
        (seconds > 1200).then_some((setting, seconds, "must be 0 to 1200"))
    }

    /// The longest grace period that any guest gets then.
    pub(crate) fn longest_grace(self) -> Duration {
        Duration::from_secs(u64::from(self.longest_grace_seconds))
    }
}
