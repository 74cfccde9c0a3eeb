//! KubeVirt's VirtualMachine: one VMI, of the machine's name, for as long as the machine is to run.
//!
//! A VMI bears a finalizer of this controller until its end is written down in the status of its machine. So no end is
//! missed, whenever the controller dies: what is to follow from it, and what must not, is known from the two objects alone.

mod decide;
mod kit;
mod make;
mod memory;
mod printable;
mod revision;
mod start_failure;
mod status;
mod step;
mod work;

use agent_objects::{KitPart, Object, ObjectId, controller_of};
use proto_node::vmi::VirtualMachineStatus;

pub use decide::{Outcome, Start, decide};
pub use memory::Memory;
pub use step::{Guest, Request, Situation, Step, step};
pub use work::VirtualMachines;

/// Kind of a machine.
pub const MACHINE: &str = "VirtualMachine";

/// Kind of copies of instance types and preferences, and of machines as they were started.
const REVISION: &str = "ControllerRevision";

/// Kind of what runs.
const VMI: &str = "VirtualMachineInstance";

/// KubeVirt's finalizer, of a machine until it has no VMI, and of a VMI until its end is written down.
pub const FINALIZER: &str = "kubevirt.io/virtualMachineControllerFinalize";

/// The finalizer of a VMI of whose guest something may be left.
const GUEST_FINALIZER: &str = "kubevirt.io/foregroundDeleteVirtualMachine";

/// The annotation of a VMI that says which generation of its machine it was made of.
const GENERATION_ANNOTATION: &str = "kubevirt.io/vm-generation";

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
    pub started: Option<Object>,
    /// Revisions that keep what it was at earlier starts than its VMI's.
    pub outdated: Vec<ObjectId>,
}

impl View {
    /// The machine's own VMI.
    fn own_vmi(&self) -> Option<&Object> {
        self.vmi.as_ref().filter(|vmi| self.is_own(vmi))
    }

    /// Whether the machine controls a VMI.
    fn is_own(&self, vmi: &Object) -> bool {
        let owner = controller_of(&vmi.metadata);
        owner.is_some_and(|owner| owner.uid == self.machine.metadata.uid)
    }
}

/// A point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// From any fixed moment, by a clock that nobody sets.
    pub elapsed: std::time::Duration,
    /// Seconds since 1970, for dates in objects.
    pub date: i64,
}

impl Moment {
    /// The date as objects have it.
    fn text(self) -> String {
        agent_domain::rfc3339(self.date)
    }
}

/// The status of a machine. One that a newer release wrote in another form counts as empty.
fn status_of(machine: &Object) -> VirtualMachineStatus {
    let status = machine.content.get("status").cloned().unwrap_or_default();
    proto_node::from_json(status).unwrap_or_default()
}

/// Whether an object has a finalizer.
fn has_finalizer(object: &Object, name: &str) -> bool {
    object.metadata.finalizers.iter().any(|it| it == name)
}

/// The phase of a VMI.
fn phase(vmi: &Object) -> &str {
    vmi.text(&["status", "phase"])
}

/// Whether a VMI has ended.
fn is_final(vmi: &Object) -> bool {
    matches!(phase(vmi), "Succeeded" | "Failed")
}

/// Whether a VMI ever ran.
fn has_run(vmi: &Object) -> bool {
    let entries = vmi.at(&["status", "phaseTransitionTimestamps"]);
    let entries = entries.and_then(|all| all.as_array());
    phase(vmi) == "Running"
        || entries
            .into_iter()
            .flatten()
            .any(|entry| entry.get("phase").is_some_and(|phase| phase == "Running"))
}
