//! What tasks of the agent share about control planes.

use std::sync::OnceLock;

use tokio::sync::Notify;

use super::renewals::Renewals;

/// What the agent knows of control planes beside what is stored.
#[derive(Default)]
pub(crate) struct ControlPlanes {
    /// The one that this node dials.
    pub(super) name: OnceLock<String>,
    /// What they renewed since.
    pub(super) renewals: Renewals,
    /// A lease was granted, renewed or taken back.
    pub(super) leases_changed: Notify,
}

impl ControlPlanes {
    /// The name of the one that this node dials.
    pub(crate) fn dialled(&self) -> Option<&str> {
        self.name.get().map(String::as_str)
    }
}
