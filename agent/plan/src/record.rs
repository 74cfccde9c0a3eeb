//! What the agent remembers of one VMI, across its own restarts.
//!
//! The ledger stores a record as it is here. Fields may be added with a default and are never given
//! another meaning.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::action::Failure;
use crate::clock::{ClockMark, Heard};
use crate::condition::Condition;
use crate::guest::{CredentialsSync, GuestTold, JudgedAddresses, SeenAddresses};
use crate::identity::{BootId, VmmIdentity};
use crate::operation::OperationTold;
use crate::orders::Orders;
use crate::places::PciPlaces;
use crate::pod::PodAddress;
use crate::probe::kept::ProbesKept;
use crate::reservation::Claim;
use crate::time::Timestamp;

/// Which VMI.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VmiId {
    /// Unique for all time; a VMI made anew under the same name has another.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl std::fmt::Display for VmiId {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}/{}", self.namespace, self.name)
    }
}

/// What was done for one VMI, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The VMI that the record belongs to.
    pub id: VmiId,
    /// The highest incarnation that was ever meant to start; 0 before the first.
    pub incarnation: u64,
    /// The start that is under way or has been; `None` before the first and after one that came to
    /// nothing.
    pub launch: Option<Launch>,
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
    /// Where its PCI functions sit, from the first launch on.
    #[serde(default)]
    pub pci: PciPlaces,
    /// The address of its socket device, 3 or more and no other VMI's of this node.
    #[serde(default)]
    pub vsock_cid: Option<u32>,
    /// What it is on the pod network, if it has an interface there: its name's, while there are objects of that name.
    #[serde(default)]
    pub pod: Option<PodAddress>,
    /// What was asked of the guest. Requests write it at any time, between a look and the storing of
    /// its plan too: whoever stores a record keeps the orders that are stored.
    #[serde(default)]
    pub orders: Orders,
    /// Up to which of [`Orders::unpauses`] the guest went on.
    #[serde(default)]
    pub unpauses_done: u64,
    /// Of a guest that firmware boots, since it was first seen running.
    #[serde(default)]
    pub firmware: Option<FirmwareWatch>,
    /// What it takes of its node: from before its first launch until it has ended and no VMM lives.
    #[serde(default)]
    pub room: Option<Claim>,
    /// What its probes have come to.
    #[serde(default)]
    pub probes: ProbesKept,
    /// Where the wall clock stood when it was last followed.
    #[serde(default)]
    pub clock: Option<ClockMark>,
    /// Its deletion, as the planner came to know of it.
    #[serde(default)]
    pub deletion: Option<Heard>,
    /// The last report of the agent in the guest.
    #[serde(default)]
    pub guest: Option<GuestTold>,
    /// Its addresses by the neighbour table of the node, when last read.
    #[serde(default)]
    pub seen: SeenAddresses,
    /// On which networks of the configuration rules judge its addresses, by the name of its interface, when last read.
    #[serde(default)]
    pub judged: BTreeMap<String, JudgedAddresses>,
    /// Whether the agent in the guest has set keys and passwords; `None` where there are none to set.
    #[serde(default)]
    pub credentials: Option<CredentialsSync>,
    /// The operation that is under way, as status shows it.
    #[serde(default)]
    pub operation: Option<OperationTold>,
    /// Interfaces, by name, whose link was down when last observed; `None` before the first observation.
    #[serde(default)]
    pub links_down: Option<BTreeSet<String>>,
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

/// One start of a VMM, as intended and as it went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// The boot of the host in which it was intended.
    pub boot_id: BootId,
    /// When it was intended.
    pub intended_at: Timestamp,
    /// Identity of the VMM, once that is known.
    pub identity: Option<VmmIdentity>,
    /// When the boot of the guest was intended. From here on the guest may have run.
    pub boot_intended_at: Option<Timestamp>,
    /// When the guest was first seen running.
    pub running_at: Option<Timestamp>,
}

/// KubeVirt's phases of a VMI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// Accepted.
    Pending,
    /// Its kernel, disks and network are being made ready.
    Scheduling,
    /// Its VMM runs; the guest does not yet.
    Scheduled,
    /// The guest runs, or is paused, be it before its first instruction.
    Running,
    /// The guest shut itself down, or was asked to.
    Succeeded,
    /// The guest crashed, vanished, or could not be started.
    Failed,
}

impl Phase {
    /// Whether it never changes any more.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }

    /// KubeVirt's word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Scheduling => "Scheduling",
            Self::Scheduled => "Scheduled",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }
}

/// When a phase was first reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseEntry {
    /// The phase that was entered.
    pub phase: Phase,
    /// Wall-clock time at which it was entered.
    pub at: Timestamp,
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
    /// When the VMM first got the order to stop at once.
    pub hard_since: Option<Timestamp>,
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
    /// Since when a VMM that should be gone has the order to end.
    pub reaping_since: Option<Timestamp>,
}

impl Record {
    /// The record of a VMI that was just accepted.
    #[must_use]
    pub fn new(id: VmiId, now: Timestamp) -> Self {
        Self {
            id,
            incarnation: 0,
            launch: None,
            phases: vec![PhaseEntry {
                phase: Phase::Pending,
                at: now,
            }],
            failures: StartFailures::default(),
            stop: None,
            end: None,
            conditions: Vec::new(),
            pci: PciPlaces::default(),
            vsock_cid: None,
            pod: None,
            orders: Orders::default(),
            unpauses_done: 0,
            firmware: None,
            room: None,
            probes: ProbesKept::default(),
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

    /// Whether a guest instruction may have been executed under this uid.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        self.launch
            .as_ref()
            .is_some_and(|launch| launch.boot_intended_at.is_some())
    }
}
