//! What came of a VMI so far, and what was seen of it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::phase::{Phase, PhaseEntry};
use crate::action::Failure;
use crate::clock::{ClockMark, NotedDeletion};
use crate::condition::Condition;
use crate::guest::{CredentialsSync, GuestAgentReport, JudgedAddresses, SeenAddresses};
use crate::operation::ReportedOperation;
use crate::probe::results::ProbeRecord;
use crate::time::Timestamp;

/// What came of a VMI so far. Its actor alone writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Phases in the order in which they were first reached. The last is the present one.
    pub phases: Vec<PhaseEntry>,
    /// Failed attempts to start, since the last success.
    pub failures: StartFailures,
    /// Set while the guest is being ended on request.
    pub stop: Option<StopProgress>,
    /// How it ended. Set together with the final phase and never changed after.
    pub end: Option<End>,
    /// As they were last reported.
    pub conditions: Vec<Condition>,
    /// Up to which of [`Orders::unpauses`](crate::Orders::unpauses) the guest went on.
    pub unpauses_done: u64,
    /// Of a guest that firmware boots, since it was first seen running.
    pub firmware: Option<FirmwareWatch>,
    /// What its probes have come to.
    pub probes: ProbeRecord,
    /// Where the wall clock stood when it was last followed.
    pub clock: Option<ClockMark>,
    /// Its deletion, as the planner came to know of it.
    pub deletion: Option<NotedDeletion>,
    /// The last report of the agent in the guest.
    pub guest: Option<GuestAgentReport>,
    /// Its addresses by the neighbour table of the node, when last read.
    pub seen: SeenAddresses,
    /// On which networks of the configuration rules judge its addresses, by the name of its interface, when last read.
    pub judged: BTreeMap<String, JudgedAddresses>,
    /// Whether the agent in the guest has set keys and passwords; `None` where there are none to set.
    pub credentials: Option<CredentialsSync>,
    /// The operation that is under way, as status shows it.
    pub operation: Option<ReportedOperation>,
    /// Interfaces, by name, whose link was down when last observed; `None` before the first observation.
    pub links_down: Option<BTreeSet<String>>,
}

impl Report {
    /// That of a VMI that was just accepted.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self {
            phases: vec![PhaseEntry {
                phase: Phase::Pending,
                at: now,
            }],
            failures: StartFailures::default(),
            stop: None,
            end: None,
            conditions: Vec::new(),
            unpauses_done: 0,
            firmware: None,
            probes: ProbeRecord::default(),
            clock: None,
            deletion: None,
            guest: None,
            seen: SeenAddresses::new(),
            judged: BTreeMap::new(),
            credentials: None,
            operation: None,
            links_down: None,
        }
    }

    /// The present phase.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phases
            .last()
            .map_or(Phase::Pending, |entry| entry.phase)
    }
}

/// What is known of a guest's firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirmwareWatch {
    /// Resets of the machine when it was last looked at.
    pub resets: u64,
    /// When firmware began, as far as was seen.
    pub since: Timestamp,
    /// `StandsStill::at` of the last words, that nothing can be booted, which became an event.
    #[serde(rename = "told_at")]
    pub reported_at: Option<u64>,
}

/// Failed attempts to start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartFailures {
    /// Consecutive failures; 0 after a start that succeeded.
    pub count: u32,
    /// How many of them cost a VMM process. These are bounded, because each may hide a bug that
    /// harms the host.
    pub vmm_deaths: u32,
    /// The last one.
    pub last: Option<Failure>,
    /// Not before this.
    pub retry_at: Option<Timestamp>,
}

/// Progress of the end of a guest on request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopProgress {
    /// Time at which the end began.
    pub since: Timestamp,
    /// When the power button was pressed, if the press was carried out.
    pub pressed_at: Option<Timestamp>,
    /// When the VMM was to be stopped at once for the first time.
    pub hard_since: Option<Timestamp>,
    /// When it took that order, which waits while many other VMMs end, or could not be given it.
    #[serde(default)]
    pub ordered_at: Option<Timestamp>,
    /// When a paused guest was let go on, so that it can shut itself down.
    #[serde(default)]
    pub resumed_at: Option<Timestamp>,
}

/// How a VMI ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// `Succeeded` or `Failed`.
    pub phase: Phase,
    /// CamelCase, for `status.reason`, such as `NodeRebooted`.
    pub reason: String,
    /// One sentence.
    pub message: String,
    /// When it was found to have ended.
    pub at: Timestamp,
    /// Since when a VMM that is still there should be gone.
    pub reaping_since: Option<Timestamp>,
    /// When it took the order to end, which waits while many other VMMs end, or could not be given it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordered_at: Option<Timestamp>,
}
