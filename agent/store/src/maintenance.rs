//! What the operator wants of the node as a whole: it outlives the agent and the node's restart.

use agent_plan::Maintenance;
use redb::{ReadableDatabase, ReadableTable};

use crate::error::StoreError;
use crate::ledger::Ledger;
use crate::tables::MAINTENANCE;
use crate::transaction::Transaction;

/// The only row.
const NODE: &str = "node";

impl Ledger {
    /// What the operator wants of the node.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn maintenance(&self) -> Result<Maintenance, StoreError> {
        self.read(|database| decode(&database.begin_read()?.open_table(MAINTENANCE)?))
    }
}

impl Transaction<'_> {
    /// What the operator wants of the node.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn maintenance(&self) -> Result<Maintenance, StoreError> {
        decode(self.maintenance.rows()?)
    }

    /// Stores what the operator wants of the node.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn put_maintenance(&mut self, wanted: &Maintenance) -> Result<(), StoreError> {
        let row = serde_json::to_vec(wanted).map_err(|error| undecodable(&error))?;
        self.changed = true;
        self.maintenance.insert(NODE, row.as_slice())?;
        Ok(())
    }
}

fn decode(
    table: &impl ReadableTable<&'static str, &'static [u8]>,
) -> Result<Maintenance, StoreError> {
    match table.get(NODE)? {
        Some(row) => serde_json::from_slice(row.value()).map_err(|error| undecodable(&error)),
        None => Ok(Maintenance::default()),
    }
}

fn undecodable(error: &serde_json::Error) -> StoreError {
    StoreError::Undecodable {
        what: format!("the maintenance of the node ({error})"),
    }
}
