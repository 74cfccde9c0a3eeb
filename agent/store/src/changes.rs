//! The change log: one for each kind, so that a flood of changes of one expires no watch of another.

use redb::{ReadableDatabase, ReadableTable};

use agent_domain::ChangeKind;

use crate::change::{Changes, change};
use crate::error::StoreError;
use crate::ledger::Ledger;
use crate::rows::{ChangeRow, ObjectKey, StoredObject};
use crate::tables::{CHANGES, COMPACTED, META, META_COMPACTED, META_VERSION};
use crate::transaction::Transaction;

impl Ledger {
    /// At most `limit` changes of objects of a kind after version `after`.
    ///
    /// # Errors
    /// [`StoreError::Expired`] when the kind's log does not reach back that far, or `after` lies in the future (it is
    /// from another ledger).
    pub fn changes_after(
        &self,
        kind: &str,
        after: u64,
        limit: usize,
    ) -> Result<Changes, StoreError> {
        self.changes_among(|known| known == kind, after, limit)
    }

    /// The same of all kinds that are `wanted`.
    ///
    /// # Errors
    /// [`StoreError::Expired`] when one of the logs does not reach back that far.
    pub fn changes_among(
        &self,
        wanted: impl Fn(&str) -> bool,
        after: u64,
        limit: usize,
    ) -> Result<Changes, StoreError> {
        self.read(|database| {
            let read = database.begin_read()?;
            let meta = read.open_table(META)?;
            let floor = meta.get(META_COMPACTED)?.map_or(0, |value| value.value());
            let newest = meta.get(META_VERSION)?.map_or(0, |value| value.value());
            let expired = |oldest| StoreError::Expired {
                wanted: after,
                oldest,
            };
            if after < floor || after > newest {
                return Err(expired(floor));
            }
            let table = read.open_table(CHANGES)?;
            let mut changes = Vec::new();
            for row in read.open_table(COMPACTED)?.iter()? {
                let (kind, log) = row?;
                let (kind, (compacted, _)) = (kind.value(), log.value());
                if !wanted(kind) {
                    continue;
                }
                if after < compacted {
                    return Err(expired(compacted));
                }
                let first = (kind, after.saturating_add(1));
                for row in table.range(first..=(kind, u64::MAX))?.take(limit) {
                    let (entry, value) = row?;
                    changes.push(change(entry.value().1, value.value())?);
                }
            }
            changes.sort_by_key(|change| change.version);
            let is_cut = changes.len() >= limit;
            changes.truncate(limit);
            let last = changes.last().map_or(newest, |change| change.version);
            Ok(Changes {
                changes,
                until: if is_cut { last } else { newest },
            })
        })
    }
}

impl Transaction<'_> {
    pub(crate) fn log(
        &mut self,
        kind: ChangeKind,
        key: &ObjectKey,
        object: StoredObject,
    ) -> Result<(), StoreError> {
        self.version += 1;
        let row = ChangeRow {
            kind: match kind {
                ChangeKind::Added => 1,
                ChangeKind::Modified => 2,
                ChangeKind::Deleted => 3,
            },
            key: key.row(),
            object: Some(object),
        };
        let entry = (key.kind.as_str(), self.version);
        let bytes = prost::Message::encode_to_vec(&row);
        self.changes.insert(entry, bytes.as_slice())?;
        match self.grown.get_mut(key.kind.as_str()) {
            Some(count) => *count += 1,
            None => {
                self.grown.insert(key.kind.clone(), 1);
            }
        }
        Ok(())
    }

    /// Counts what has come to the logs, and shortens those that have grown too long.
    pub(crate) fn compact(&mut self) -> Result<(), StoreError> {
        for (kind, more) in std::mem::take(&mut self.grown) {
            let log = self.compacted.rows()?.get(kind.as_str())?;
            let (mut compacted, mut count) = log.map_or((0, 0), |log| log.value());
            count += more;
            let surplus = count.saturating_sub(self.limits.changes);
            let surplus = usize::try_from(surplus).unwrap_or(usize::MAX);
            let range = (kind.as_str(), 0)..=(kind.as_str(), u64::MAX);
            let mut oldest = Vec::new();
            for row in self.changes.rows()?.range(range)?.take(surplus) {
                oldest.push(row?.0.value().1);
            }
            for version in oldest {
                self.changes.remove((kind.as_str(), version))?;
                (compacted, count) = (version, count - 1);
            }
            self.compacted.insert(kind.as_str(), (compacted, count))?;
        }
        Ok(())
    }
}
