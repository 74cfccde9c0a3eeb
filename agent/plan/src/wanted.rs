//! What is wanted of one VMI, as far as the planner has a say in it.

use std::collections::BTreeSet;

use crate::condition::ConditionStatus;
use crate::maintenance::Closed;
use crate::pci_addresses::PciDemand;
use crate::probe::results::ProbeResults;
use crate::reservation::Reservation;
use crate::time::{Millis, Timestamp};

/// What is wanted. The machine itself is the host's business: an action carries it out for the
/// admitted VMI as it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// `metadata.generation`.
    pub generation: i64,
    /// Set once `metadata.deletionTimestamp` is.
    pub deletion: Option<Deletion>,
    /// Conditions that admission found, such as `DevicesSubstituted`, and what of the guest's networks is not judged.
    pub admitted: Vec<AdmittedCondition>,
    /// What needs an address on a PCI bus.
    pub pci: PciDemand,
    /// Interfaces, by name, whose link is to be down.
    pub links_down: BTreeSet<String>,
    /// Firmware boots the guest.
    pub firmware: bool,
    /// Whether the node has enough left for it. Ignored once it was granted.
    pub reservation: Reservation,
    /// What the guest's probes have come to.
    pub probes: ProbeResults,
    /// Why the node starts no guests at present. Of no account for one that was started.
    pub closed: Option<Closed>,
}

/// A request to delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// When it was asked for.
    pub requested_at: Timestamp,
    /// How long the guest has to shut itself down; zero ends it at once.
    pub grace: Millis,
}

/// A condition that holds as long as the spec is what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmittedCondition {
    /// Condition type in CamelCase, such as `LiveMigratable`.
    pub kind: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// CamelCase.
    pub reason: String,
    /// One sentence.
    pub message: String,
}
