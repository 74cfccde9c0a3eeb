//! What became of a test, and what it took.

use serde::{Deserialize, Serialize};

/// The outcome of a test.
pub(super) enum TestOutcome {
    Passed,
    /// With what it printed.
    Failed(String),
    /// With the reason.
    Skipped(String),
}

impl TestOutcome {
    /// Of a test that is marked so, with the reason that its mark gives, if it gives one.
    pub(super) fn ignored(reason: &str) -> Self {
        let colon = if reason.is_empty() { "" } else { ": " };
        Self::Skipped(format!("marked ignore{colon}{reason}"))
    }
}

pub(super) struct TestResult {
    pub name: String,
    pub cost: Cost,
    pub outcome: TestOutcome,
}

/// Time on the clock and on CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(super) struct Cost {
    /// From its start to its end.
    pub seconds: f64,
    /// Of CPUs, by it and all programs that it waited for.
    pub cpu_seconds: f64,
}

impl Cost {
    /// How many CPUs it kept busy on average.
    pub(super) fn cpus(self) -> f64 {
        self.cpu_seconds / self.seconds.max(0.001)
    }
}
