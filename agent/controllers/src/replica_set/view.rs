//! What the controller sees of a replica set, and what it reads in the VMIs of one.

use agent_objects::Object;

/// Kind of a replica set.
pub(super) const SET: &str = "VirtualMachineInstanceReplicaSet";

/// Kind of a replica.
pub(super) const VMI: &str = "VirtualMachineInstance";

/// Creations whose outcome is not yet seen, at most.
pub(super) const BURST: usize = 10;

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
pub(super) fn is_final(vmi: &Object) -> bool {
    matches!(vmi.text(&["status", "phase"]), "Succeeded" | "Failed")
}

/// Whether a VMI is ready.
pub(super) fn is_ready(vmi: &Object) -> bool {
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
