//! A change as the log has it.

use agent_domain::ChangeKind;

use crate::error::StoreError;
use crate::rows::{ChangeRow, ObjectKey, StoredObject, decode, parse_key};

/// One entry of the change log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The version that the change made.
    pub version: u64,
    /// Whether the entry was added, modified or deleted.
    pub kind: ChangeKind,
    /// To which object.
    pub key: ObjectKey,
    /// The object after the change, or its last state.
    pub object: StoredObject,
}

/// Changes, and how far they reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The oldest first.
    pub changes: Vec<Change>,
    /// Everything up to this version was looked at.
    pub until: u64,
}

pub(crate) fn change(version: u64, row: &[u8]) -> Result<Change, StoreError> {
    let row: ChangeRow = decode(row, "a change")?;
    let kind = match row.kind {
        1 => ChangeKind::Added,
        2 => ChangeKind::Modified,
        3 => ChangeKind::Deleted,
        other => {
            return Err(StoreError::Undecodable {
                what: format!("a change of kind {other}"),
            });
        }
    };
    let object = row.object.ok_or_else(|| StoreError::Undecodable {
        what: String::from("a change of nothing"),
    })?;
    Ok(Change {
        version,
        kind,
        key: parse_key(&row.key)?,
        object,
    })
}
