//! Which objects the agent has given the node by itself, so that it does not give again what an operator took away.

use std::collections::BTreeMap;

use redb::ReadableDatabase;

use crate::error::StoreError;
use crate::ledger::Ledger;
use crate::tables::MAINTENANCE;
use crate::transaction::Transaction;

/// The row, beside that of the node's maintenance.
const GIVEN: &str = "given";

impl Ledger {
    /// What was given, by name, with a digest of what it was. Nothing in the ledger of an agent that kept no account.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn given(&self) -> Result<Option<BTreeMap<String, String>>, StoreError> {
        self.read(|database| {
            let table = database.begin_read()?.open_table(MAINTENANCE)?;
            let row = table.get(GIVEN)?;
            let decoded = row.map(|row| serde_json::from_slice(row.value()));
            decoded.transpose().map_err(|error| undecodable(&error))
        })
    }
}

impl Transaction<'_> {
    /// Stores what is given from now on.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn put_given(&mut self, given: &BTreeMap<String, String>) -> Result<(), StoreError> {
        let row = serde_json::to_vec(given).map_err(|error| undecodable(&error))?;
        self.changed = true;
        self.maintenance.insert(GIVEN, row.as_slice())?;
        Ok(())
    }
}

fn undecodable(error: &serde_json::Error) -> StoreError {
    StoreError::Undecodable {
        what: format!("what was given to the node ({error})"),
    }
}
