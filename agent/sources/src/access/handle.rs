//! The policy that all calls are judged by, and that may be replaced.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;

use super::policy::Policy;

/// The policy in force. Cheap to clone; every clone sees a change.
#[derive(Clone, Debug)]
pub struct Access(Arc<watch::Sender<Arc<Policy>>>);

impl Access {
    /// Judges by `policy`.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self(Arc::new(watch::Sender::new(Arc::new(policy))))
    }

    /// Judges every later call by another policy, and every open one again: those whose grants are withdrawn end.
    pub fn set(&self, policy: Policy) {
        self.0.send_replace(Arc::new(policy));
    }

    /// The policy in force.
    pub(crate) fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.0.borrow())
    }

    /// Every policy from the next one on.
    pub(super) fn changes(&self) -> WatchStream<Arc<Policy>> {
        WatchStream::from_changes(self.0.subscribe())
    }
}
