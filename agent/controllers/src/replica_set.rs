//! KubeVirt's VirtualMachineInstanceReplicaSet: as many VMIs of a template as are wanted.

mod claim;
mod decide;
mod memory;
mod status;
mod view;
mod work;

pub use decide::{Outcome, decide};
pub use memory::Memory;
pub use view::View;
pub use work::ReplicaSets;
