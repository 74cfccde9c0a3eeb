//! The pure planner: what was observed and recorded goes in, actions and conditions come out.
//!
//! One VMI is one sequence of *observe, plan, execute*. This crate owns the middle: [`plan()`] looks
//! at what is wanted ([`Wanted`]), what was done so far ([`Record`]) and what the host was seen to be
//! like ([`Observed`]), and says what to do next ([`Plan`]). It does no I/O, reads no clock and draws
//! no random number, so that a simulator can drive it through every order of faults.
//!
//! Three rules run through all of it:
//!
//! * `Unknown` is not `Absent`. Nothing is destroyed, and no guest is declared dead, for want of an
//!   answer.
//! * A guest that may have run under a uid never runs a second time under that uid.
//! * Intents are recorded before they are carried out, so that a crash in between costs one observation.

#![forbid(unsafe_code)]

mod action;
mod assignment;
mod capacity;
mod clock;
mod condition;
mod cpus;
mod credentials;
mod dedicated;
mod ending;
mod guest;
mod identity;
mod images;
mod lease;
mod lease_orders;
mod maintenance;
mod observation;
mod operation;
mod orders;
mod pci_addresses;
mod planner;
mod pod;
mod probe;
mod record;
mod report;
mod reservation;
mod time;
mod wanted;

pub use action::{Action, Completed, Failure, FailureClass, Holding};
pub use assignment::{
    Assignment, Fence, Offer, Placed, Stage, Step, accept, fence, step, withdraw,
};
pub use capacity::{
    Capacity, CapacityRules, GuestDemand, Misplaced, NodeInventory, Used, misplaced,
    reservation_of, uids_that_fit, used,
};
pub use clock::{ClockMark, NotedDeletion};
pub use condition::{Condition, ConditionStatus, EventKind, PlanEvent};
pub use cpus::{CpuLayout, CpuSet, CpuSite, NotCpus};
pub use dedicated::{CpuDemand, DedicatedCpus, PinnedCpu, dedicate};
pub use ending::complete;
pub use guest::{
    CredentialsSync, GuestAgentReport, GuestInterface, GuestOs, JudgedAddresses,
    NetworkObservation, SeenAddresses,
};
pub use identity::{BootId, VmmIdentity};
pub use images::ImageEvent;
pub use lease::{BootTime, Lease, LeaseStep, LeaseTerms, OnExpiry};
pub use lease_orders::{LeaseOutcome, end_of_another_boot, keep_lease};
pub use maintenance::{
    Closed, DrainOrder, EvictionStep, EvictionStrategy, GuestToDrain, Maintenance, evictions,
};
pub use observation::{
    DurableStore, Enforcement, ExitObserved, ExitReason, MachineObserved, MachineState,
    Observation, Observed, PauseObserved, StandsStill, SyncFailure, VmmObserved,
};
pub use operation::{OperationObserved, OperationState, Progress, ReportedOperation, Work};
pub use orders::request::{Order, OrderError, order, order_stop};
pub use orders::{Orders, StopCause, StopOrder};
pub use pci_addresses::{AddressDemand, PciAddresses, PciDemand};
pub use planner::{Plan, plan};
pub use pod::{PodAddress, PodLease, free_address, is_of_pool, pool_size};
pub use probe::{
    ProbeAnswer, ProbeCount, ProbeKind, ProbeRecord, ProbeResult, ProbeResults, Unhealthy,
    may_be_probed,
};
pub use record::{
    Allocations, End, FirmwareWatch, Launch, Launches, Phase, PhaseEntry, Record, Report,
    StartFailures, StopProgress, VmiId,
};
/// What is counted for one of each device whose memory the VMM bounds.
pub mod overhead {
    pub use crate::reservation::{BITMAP_BYTES, DISK_BYTES, PAIR_BYTES, VSOCK_BYTES};
}

pub use reservation::{CpuGrant, HugepageDemand, Reservation, ResourceDemand, overhead_bytes};
pub use time::{Millis, Timestamp};
pub use wanted::{AdmittedCondition, Deletion, Wanted};
