//! What is wanted of the node, and that it goes down.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use agent_plan::{Closed, DrainOrder, Maintenance};
use tokio::sync::Notify;

/// What is wanted of the node, in memory as in the ledger.
#[derive(Debug)]
pub(crate) struct NodeMaintenance {
    pub(crate) wanted: Mutex<Maintenance>,
    /// Something else is wanted than before.
    pub(crate) changed: Notify,
    /// The node goes down, and this agent with it.
    goes_down: AtomicBool,
}

impl NodeMaintenance {
    pub(crate) fn new(wanted: Maintenance) -> Self {
        Self {
            wanted: Mutex::new(wanted),
            changed: Notify::new(),
            goes_down: AtomicBool::new(false),
        }
    }

    /// Why the node starts no guests, if it starts none.
    pub(crate) fn closed(&self, node_name: &str) -> Option<Closed> {
        if self.goes_down.load(Ordering::Relaxed) {
            return Some(Closed::going_down(node_name));
        }
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.closed(node_name)
    }

    /// Starts no guests any more: the node goes down.
    pub(crate) fn go_down(&self) {
        self.goes_down.store(true, Ordering::Relaxed);
    }

    /// The drain that is ordered.
    pub(crate) fn drain(&self) -> Option<DrainOrder> {
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.drain.clone()
    }
}
