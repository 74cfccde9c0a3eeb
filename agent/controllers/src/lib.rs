//! Controllers: objects go in, writes come out.
//!
//! Deciding is a pure function of what a controller sees, of what it remembers and of the time it is given. Doing is
//! [`ReplicaSets::work`] and [`VirtualMachines::work`], which carry decisions out through an [`ObjectStore`]: the ledger of a node now, and any
//! other store that keeps Kubernetes' semantics. A store may show a past state, lose a reply after it did what was
//! asked, and be gone between any two writes.

#![forbid(unsafe_code)]

mod event;
mod namespace;
mod patch;
mod queue;
mod replica_set;
mod store;
pub mod virtual_machine;

pub use event::ControllerEvent;
pub use namespace::Namespaces;
pub use queue::WorkQueue;
pub use replica_set::{Memory, Outcome, ReplicaSets, View, decide};
pub use store::{Change, ChangeKind, Listed, ObjectStore, StoreError};
pub use virtual_machine::VirtualMachines;
