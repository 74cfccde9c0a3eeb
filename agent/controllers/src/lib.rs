//! Controllers: objects go in, writes come out.
//!
//! Deciding is a pure function of what a controller sees, of what it remembers and of the time it is given. Doing is
//! [`ReplicaSets::work`], which carries decisions out through an [`ObjectStore`]: the ledger of a node now, and any
//! other store that keeps Kubernetes' semantics. A store may show a past state, lose a reply after it did what was
//! asked, and be gone between any two writes.

#![forbid(unsafe_code)]

mod namespace;
mod queue;
mod replica_set;
mod store;

pub use namespace::Namespaces;
pub use queue::WorkQueue;
pub use replica_set::{Memory, Outcome, ReplicaSets, Said, View, decide};
pub use store::{Change, ChangeKind, Listed, ObjectStore, StoreError};
