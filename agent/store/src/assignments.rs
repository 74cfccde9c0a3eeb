//! What control planes assigned, beside the objects that were made of it: fencing tokens and leases have to
//! outlive both the objects and the agent.

use agent_plan::Assignment;
use redb::{ReadableDatabase, ReadableTable, ReadableTableMetadata};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::ledger::Ledger;
use crate::tables::ASSIGNMENTS;
use crate::transaction::Transaction;

/// Names of all control planes together that are remembered; what was withdrawn longest ago goes first.
const MOST: u64 = 8192;

/// Occurs in no name, and sorts before all of them.
const SEPARATOR: char = '\u{0}';

/// Names one assignment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AssignmentKey {
    /// The control plane's name on this node.
    pub control_plane: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl AssignmentKey {
    fn row(&self) -> String {
        format!(
            "{}{SEPARATOR}{}{SEPARATOR}{}",
            self.control_plane, self.namespace, self.name
        )
    }

    fn parse(row: &str) -> Result<Self, StoreError> {
        let parts: Vec<&str> = row.split(SEPARATOR).collect();
        let [control_plane, namespace, name] = parts.as_slice() else {
            return Err(StoreError::Undecodable {
                what: format!("the key {row:?} of an assignment"),
            });
        };
        Ok(Self {
            control_plane: (*control_plane).to_owned(),
            namespace: (*namespace).to_owned(),
            name: (*name).to_owned(),
        })
    }
}

/// What is remembered of a control plane as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlPlaneMark {
    /// The highest fencing token that was ever seen of it.
    pub highest: u64,
    /// Names that are not remembered had tokens up to this one.
    pub floor: u64,
}

impl Ledger {
    /// Every assignment that is remembered, withdrawn ones too, by control plane, namespace and name.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn assignments(&self) -> Result<Vec<(AssignmentKey, Assignment)>, StoreError> {
        self.read(|database| {
            let table = database.begin_read()?.open_table(ASSIGNMENTS)?;
            table.iter()?.map(|row| parse(row?)).collect()
        })
    }
}

impl Transaction<'_> {
    /// What is remembered of a name.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn assignment(&self, key: &AssignmentKey) -> Result<Option<Assignment>, StoreError> {
        let row = self.assignments.rows()?.get(key.row().as_str())?;
        row.map(|row| decode(row.value())).transpose()
    }

    /// What is remembered of a control plane.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn control_plane(&self, name: &str) -> Result<ControlPlaneMark, StoreError> {
        let row = self.control_planes.rows()?.get(name)?;
        row.map_or(Ok(ControlPlaneMark::default()), |row| decode(row.value()))
    }

    /// Remembers an assignment, and its token as one that its control plane has given out. Where too many names
    /// are remembered, the withdrawn one with the lowest token is forgotten; the mark's floor fences it then.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn put_assignment(
        &mut self,
        key: &AssignmentKey,
        assignment: &Assignment,
    ) -> Result<(), StoreError> {
        self.changed = true;
        self.assignments
            .insert(key.row().as_str(), encode(assignment)?.as_slice())?;
        let mut mark = self.control_plane(&key.control_plane)?;
        mark.highest = mark.highest.max(assignment.token);
        self.put_mark(&key.control_plane, mark)?;
        if self.assignments.rows()?.len()? > MOST {
            self.remove_oldest_withdrawn()?;
        }
        Ok(())
    }

    fn remove_oldest_withdrawn(&mut self) -> Result<(), StoreError> {
        let mut oldest: Option<(AssignmentKey, Assignment)> = None;
        for row in self.assignments.rows()?.iter()? {
            let (key, assignment) = parse(row?)?;
            let is_older = oldest
                .as_ref()
                .is_none_or(|(_, known)| assignment.token < known.token);
            if assignment.stage == agent_plan::Stage::Withdrawn && is_older {
                oldest = Some((key, assignment));
            }
        }
        let Some((key, forgotten)) = oldest else {
            return Ok(());
        };
        self.assignments.remove(key.row().as_str())?;
        let mut mark = self.control_plane(&key.control_plane)?;
        mark.floor = mark.floor.max(forgotten.token);
        self.put_mark(&key.control_plane, mark)
    }

    fn put_mark(&mut self, name: &str, mark: ControlPlaneMark) -> Result<(), StoreError> {
        self.changed = true;
        self.control_planes
            .insert(name, encode(&mark)?.as_slice())?;
        Ok(())
    }
}

type Row<'a> = (
    redb::AccessGuard<'a, &'static str>,
    redb::AccessGuard<'a, &'static [u8]>,
);

fn parse((key, value): Row<'_>) -> Result<(AssignmentKey, Assignment), StoreError> {
    Ok((AssignmentKey::parse(key.value())?, decode(value.value())?))
}

fn decode<T: DeserializeOwned>(row: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(row).map_err(|error| StoreError::Undecodable {
        what: format!("an assignment ({error})"),
    })
}

fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(value).map_err(|error| StoreError::Undecodable {
        what: format!("an assignment ({error})"),
    })
}
