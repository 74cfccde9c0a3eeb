//! Addresses of the pod network, by the namespace and name of whom they belong to.

use agent_plan::PodLease;
use redb::{ReadableDatabase, ReadableTable, ReadableTableMetadata};

use crate::error::StoreError;
use crate::ledger::Ledger;
use crate::tables::POD_LEASES;
use crate::transaction::Transaction;

/// Occurs in no name, and sorts before all of them.
const SEPARATOR: char = '\u{0}';

/// A namespace and a name in it.
pub type NamespacedName = (String, String);

impl Ledger {
    /// The lease of a name, and how many leases there are.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn pod_lease(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<(Option<PodLease>, u64), StoreError> {
        self.read(|database| {
            let table = database.begin_read()?.open_table(POD_LEASES)?;
            let lease = table.get(row(namespace, name).as_str())?;
            let lease = lease.map(|row| decode(row.value())).transpose()?;
            Ok((lease, table.len()?))
        })
    }
}

impl Transaction<'_> {
    /// The lease of a name.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn pod_lease(&self, namespace: &str, name: &str) -> Result<Option<PodLease>, StoreError> {
        let row = self.pod_leases.rows()?.get(row(namespace, name).as_str())?;
        row.map(|row| decode(row.value())).transpose()
    }

    /// All leases.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn pod_leases(&self) -> Result<Vec<(NamespacedName, PodLease)>, StoreError> {
        let rows = self.pod_leases.rows()?.iter()?.map(|row| {
            let (key, value) = row?;
            let (namespace, name) = key.value().split_once(SEPARATOR).unwrap_or_default();
            let key = (namespace.to_owned(), name.to_owned());
            Ok((key, decode(value.value())?))
        });
        rows.collect()
    }

    /// Stores the lease of a name, or forgets it.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn put_pod_lease(
        &mut self,
        (namespace, name): (&str, &str),
        lease: Option<&PodLease>,
    ) -> Result<(), StoreError> {
        self.changed = true;
        let key = row(namespace, name);
        match lease {
            None => drop(self.pod_leases.remove(key.as_str())?),
            Some(lease) => {
                let value = serde_json::to_vec(lease).map_err(|error| undecodable(&error))?;
                self.pod_leases.insert(key.as_str(), value.as_slice())?;
            }
        }
        Ok(())
    }
}

fn row(namespace: &str, name: &str) -> String {
    format!("{namespace}{SEPARATOR}{name}")
}

fn decode(row: &[u8]) -> Result<PodLease, StoreError> {
    serde_json::from_slice(row).map_err(|error| undecodable(&error))
}

fn undecodable(error: &serde_json::Error) -> StoreError {
    StoreError::Undecodable {
        what: format!("a lease of the pod network ({error})"),
    }
}
