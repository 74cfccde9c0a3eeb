//! KubeVirt's VirtualMachine: one VMI, of the machine's name, for as long as the machine is to run.
//!
//! A VMI bears a finalizer of this controller until its end is written down in the status of its machine. So no end is
//! missed, whenever the controller dies: what is to follow from it, and what must not, is known from the two objects alone.

mod decide;
mod drift;
mod follow;
mod kit;
mod make;
mod memory;
mod moment;
mod printable;
mod revision;
mod start_failure;
mod status;
mod step;
mod view;
mod work;

pub use decide::{Outcome, Start, decide};
pub use memory::Memory;
pub use moment::Moment;
pub use step::{Guest, Request, Situation, Step, step};
pub use view::{FINALIZER, MACHINE, Started, View};
pub use work::VirtualMachines;
