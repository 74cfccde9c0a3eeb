//! The common instance types and preferences. Those of the chosen release are made when the node starts, and follow it.
//! What an operator changes or removes stays so.

mod plan;

use agent_domain::CommonRelease;
use agent_objects::{Kinds, Object};
use agent_sources::{ApiError, ObjectRegistry};
use serde_json::Value;

use self::plan::{Plan, plan};
use super::Objects;
use crate::error::store;

const KINDS: [&str; 2] = [
    "VirtualMachineClusterInstancetype",
    "VirtualMachineClusterPreference",
];

impl Objects {
    /// Has the node have those of a release; others that it was given before go. Nothing may be served yet.
    ///
    /// # Errors
    /// When the ledger cannot be read or written.
    pub(crate) fn install_common(&self, release: Option<CommonRelease>) -> Result<(), ApiError> {
        let mut present = Vec::new();
        for kind in KINDS {
            present.extend(self.list_objects(kind)?.items);
        }
        let wanted = release.map(CommonRelease::objects).unwrap_or_default();
        let wanted = wanted.into_iter().map(read).collect::<Result<_, _>>()?;
        let before = self.store.ledger().given().map_err(store)?;
        let Plan { writes, given } = plan(release, wanted, present, before.as_ref());
        if writes.is_empty() && before.as_ref() == Some(&given) {
            return Ok(());
        }
        // One transaction: whenever the agent is killed, what it has given is what it knows to have given.
        self.change_together(writes, |transaction| Ok(transaction.put_given(&given)?))
    }
}

fn read(value: Value) -> Result<Object, ApiError> {
    let read = Kinds::this_release().read(value);
    let (_, object) = read.map_err(|error| ApiError::Internal(error.to_string()))?;
    Ok(object)
}
