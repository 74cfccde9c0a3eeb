//! What the controller sees of a machine, and what it reads in the objects of one.

use agent_domain::Kit;
use agent_objects::{KitPart, Object, ObjectId, controller_of};
use proto_node::vmi::VirtualMachineStatus;

/// Kind of a machine.
pub const MACHINE: &str = "VirtualMachine";

/// Kind of copies of instance types and preferences, and of machines as they were started.
pub(super) const REVISION: &str = "ControllerRevision";

/// Kind of what runs.
pub(super) const VMI: &str = "VirtualMachineInstance";

/// KubeVirt's finalizer, of a machine until it has no VMI, and of a VMI until its end is written down.
pub const FINALIZER: &str = "kubevirt.io/virtualMachineControllerFinalize";

/// The finalizer of a VMI of whose guest something may be left.
pub(super) const GUEST_FINALIZER: &str = "kubevirt.io/foregroundDeleteVirtualMachine";

/// The annotation of a VMI that says which generation of its machine it was made of.
pub(super) const GENERATION_ANNOTATION: &str = "kubevirt.io/vm-generation";

/// What the controller sees of one machine. It may be a past state, and never goes back. The VMI is no older than the
/// machine.
#[derive(Clone, Debug)]
pub struct View {
    /// The machine.
    pub machine: Object,
    /// The VMI of its name, whoever made it.
    pub vmi: Option<Object>,
    /// The version at which the VMI was read.
    pub version: u64,
    /// The instance type that the machine names.
    pub instancetype: KitPart,
    /// The preference that it names.
    pub preference: KitPart,
    /// What the machine was when the VMI was made, if it has been changed since.
    pub started: Option<Started>,
    /// Revisions that keep what it was at earlier starts than its VMI's.
    pub outdated: Vec<ObjectId>,
}

/// What a machine was when its VMI was made.
#[derive(Clone, Debug)]
pub struct Started {
    /// The revision that keeps it.
    pub revision: Object,
    /// The instance type that it named.
    pub instancetype: KitPart,
    /// The preference that it named.
    pub preference: KitPart,
}

impl Started {
    /// What its template was completed by; nothing when that is gone.
    pub(super) fn kit(&self) -> Option<Kit<'_>> {
        let is_there = |part: &KitPart| !matches!(part, KitPart::Missing(_));
        (is_there(&self.instancetype) && is_there(&self.preference)).then(|| Kit {
            instancetype: self.instancetype.spec(),
            preference: self.preference.spec(),
        })
    }
}

impl View {
    /// The machine's own VMI.
    pub(super) fn own_vmi(&self) -> Option<&Object> {
        self.vmi.as_ref().filter(|vmi| self.is_own(vmi))
    }

    /// Whether the machine controls a VMI.
    pub(super) fn is_own(&self, vmi: &Object) -> bool {
        let owner = controller_of(&vmi.metadata);
        owner.is_some_and(|owner| owner.uid == self.machine.metadata.uid)
    }
}

/// The status of a machine. One that a newer release wrote in another form counts as empty.
pub(super) fn status_of(machine: &Object) -> VirtualMachineStatus {
    let status = machine.content.get("status").cloned().unwrap_or_default();
    proto_node::from_json(status).unwrap_or_default()
}

/// Whether an object has a finalizer.
pub(super) fn has_finalizer(object: &Object, name: &str) -> bool {
    object.metadata.finalizers.iter().any(|it| it == name)
}

/// The phase of a VMI.
pub(super) fn phase(vmi: &Object) -> &str {
    vmi.text(&["status", "phase"])
}

/// Whether a VMI has ended.
pub(super) fn is_final(vmi: &Object) -> bool {
    matches!(phase(vmi), "Succeeded" | "Failed")
}

/// Whether a VMI ever ran.
pub(super) fn has_run(vmi: &Object) -> bool {
    let entries = vmi.at(&["status", "phaseTransitionTimestamps"]);
    let entries = entries.and_then(|all| all.as_array());
    phase(vmi) == "Running"
        || entries
            .into_iter()
            .flatten()
            .any(|entry| entry.get("phase").is_some_and(|phase| phase == "Running"))
}
