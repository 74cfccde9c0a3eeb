//! Which namespaces may go on using which paths of the host: outlives the VMIs that named them.

use agent_domain::{PathRecord, PathRecords};
use redb::{ReadableDatabase, ReadableTable};
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::ledger::Ledger;
use crate::tables::{META, META_PATHS, PATHS};
use crate::transaction::Transaction;

/// `PathRecord` as it is stored.
#[derive(Serialize, Deserialize)]
struct Row {
    namespaces: Vec<String>,
    exclusive: bool,
    /// Rows of earlier releases are without.
    #[serde(default)]
    since: u64,
}

impl Ledger {
    /// All paths that are remembered.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn path_records(&self) -> Result<PathRecords, StoreError> {
        self.read(|database| {
            let table = database.begin_read()?.open_table(PATHS)?;
            let mut records = PathRecords::new();
            for row in table.iter()? {
                let (path, row) = row?;
                records.insert(path.value().into(), decode(row.value())?);
            }
            Ok(records)
        })
    }

    /// Whether VMIs were accepted by a release that remembered no paths, and theirs are not noted yet.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn lacks_path_records(&self) -> Result<bool, StoreError> {
        self.read(|database| {
            let meta = database.begin_read()?.open_table(META)?;
            Ok(meta.get(META_PATHS)?.is_none())
        })
    }
}

impl Transaction<'_> {
    /// What is remembered of exactly this path.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn path_record(&self, path: &str) -> Result<Option<PathRecord>, StoreError> {
        let row = self.paths.rows()?.get(path)?;
        row.map(|row| decode(row.value())).transpose()
    }

    /// How many exclusive paths a namespace has.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn paths_of(&self, namespace: &str) -> Result<usize, StoreError> {
        let mut count = 0;
        for row in self.paths.rows()?.iter()? {
            let record = decode(row?.1.value())?;
            count += usize::from(record.exclusive && record.namespaces.contains(namespace));
        }
        Ok(count)
    }

    /// Remembers a path.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn put_path(&mut self, path: &str, record: &PathRecord) -> Result<(), StoreError> {
        let row = Row {
            namespaces: record.namespaces.iter().cloned().collect(),
            exclusive: record.exclusive,
            since: record.since,
        };
        let row = serde_json::to_vec(&row).map_err(|error| undecodable(&error))?;
        self.changed = true;
        self.paths.insert(path, row.as_slice())?;
        Ok(())
    }

    /// Notes that the paths of all VMIs that were accepted before are remembered.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn note_path_records(&mut self) -> Result<(), StoreError> {
        self.changed = true;
        self.meta.insert(META_PATHS, 1)?;
        Ok(())
    }
}

fn decode(row: &[u8]) -> Result<PathRecord, StoreError> {
    let row: Row = serde_json::from_slice(row).map_err(|error| undecodable(&error))?;
    Ok(PathRecord {
        namespaces: row.namespaces.into_iter().collect(),
        exclusive: row.exclusive,
        since: row.since,
    })
}

fn undecodable(error: &serde_json::Error) -> StoreError {
    StoreError::Undecodable {
        what: format!("whose a path is ({error})"),
    }
}
