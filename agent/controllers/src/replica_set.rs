//! KubeVirt's VirtualMachineInstanceReplicaSet: as many VMIs of a template as are wanted.

mod claim;
mod decide;
mod memory;
mod status;
mod work;

use agent_objects::Object;

use crate::Said;

pub use decide::{Outcome, decide};
pub use memory::Memory;
pub use work::ReplicaSets;

/// Kind of a replica set.
const SET: &str = "VirtualMachineInstanceReplicaSet";

/// Kind of a replica.
const VMI: &str = "VirtualMachineInstance";

/// Creations whose outcome is not yet seen, at most.
const BURST: usize = 10;

/// What the controller sees of one set. It may be a past state, and never goes back.
#[derive(Clone, Debug)]
pub struct View {
    /// The set.
    pub set: Object,
    /// The VMIs of its namespace that it owns, and those that nobody controls and that it may select; others may be
    /// among them.
    pub vmis: Vec<Object>,
    /// The version at which these VMIs were read.
    pub version: u64,
}

/// Whether a VMI has ended.
fn is_final(vmi: &Object) -> bool {
    matches!(vmi.text(&["status", "phase"]), "Succeeded" | "Failed")
}

/// Whether a VMI is ready.
fn is_ready(vmi: &Object) -> bool {
    let conditions = vmi
        .at(&["status", "conditions"])
        .and_then(|all| all.as_array());
    conditions.into_iter().flatten().any(|condition| {
        condition.get("type").is_some_and(|kind| kind == "Ready")
            && condition
                .get("status")
                .is_some_and(|status| status == "True")
    })
}
