//! Who may do what: callers, the grants of the configuration, and the one place where calls are judged.

mod accounts;
mod caller;
mod certificate;
mod layer;
mod permit;
mod policy;

use std::sync::{Arc, PoisonError, RwLock};

pub(crate) use accounts::group_number;
pub(crate) use caller::Caller;
pub(crate) use certificate::Subject;
pub(crate) use layer::AccessLayer;
pub(crate) use permit::Permit;
pub use policy::{Grant, Policy};

/// The policy in force. Cheap to clone; every clone sees a change.
#[derive(Clone, Debug)]
pub struct Access(Arc<RwLock<Arc<Policy>>>);

impl Access {
    /// Judges by `policy`.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(policy))))
    }

    /// Judges every later call by another policy. Streams that are open go on as they began.
    pub fn set(&self, policy: Policy) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
    }

    /// The policy in force.
    pub(crate) fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}
