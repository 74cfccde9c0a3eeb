//! What a plan says to people: conditions and events.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// One condition of a VMI, in Kubernetes' sense.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// Type, such as `Ready`.
    pub kind: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// CamelCase; may be empty when the status says it all.
    pub reason: String,
    /// One sentence for people.
    pub message: String,
    /// The generation of the spec that it speaks of.
    pub observed_generation: i64,
    /// When the status last changed.
    pub last_transition_at: Timestamp,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Nobody knows whether it holds.
    Unknown,
}

impl ConditionStatus {
    /// Kubernetes' word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// One event to record for a VMI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanEvent {
    /// Whether a person should look at it.
    pub kind: EventKind,
    /// CamelCase, KubeVirt's word where it has one.
    pub reason: String,
    /// One sentence.
    pub message: String,
}

/// Kubernetes' two kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A step that was expected.
    Normal,
    /// A failure, or a state that does not end by itself.
    Warning,
}

impl EventKind {
    /// Kubernetes' word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}
