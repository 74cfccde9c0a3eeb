//! What probes are, and what they have come to.

use serde::{Deserialize, Serialize};

use crate::time::{Millis, Timestamp};

/// Which of a VMI's probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// Whether the guest lives.
    Liveness,
    /// Whether the guest can do its work.
    Readiness,
}

impl ProbeKind {
    /// The kubelet's word, as events begin with it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }
}

/// One answer to a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// As it should be.
    Good,
    /// The guest did not answer, or not well: why, in one bounded line.
    Bad(String),
    /// The guest could not be asked, which says nothing of it: why, in one bounded line.
    NotAsked(String),
}

/// State of a probe after its thresholds of successes and failures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProbeResult {
    /// Nothing yet.
    #[default]
    None,
    /// Enough good answers in a row.
    Succeeded,
    /// Enough bad answers in a row.
    Failed {
        /// The last of them.
        why: String,
    },
}

/// Present results of the probes of a VMI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeResults {
    /// `None`: it has no such probe.
    pub liveness: Option<ProbeResult>,
    /// `None`: it has no such probe.
    pub readiness: Option<ProbeResult>,
    /// How long a guest that fails its liveness probe has to shut itself down.
    pub grace: Millis,
}

/// What is remembered of a VMI's probes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbeRecord {
    /// The last result on its readiness: it holds until the next, through a restart of the agent too.
    pub readiness: ProbeResult,
    /// Set once its liveness probe has failed: the guest is ended.
    pub unhealthy: Option<Unhealthy>,
}

/// A liveness probe that has failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unhealthy {
    /// Time of the failure.
    pub at: Timestamp,
    /// The last answer.
    pub why: String,
}
