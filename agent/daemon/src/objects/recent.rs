//! What has changed of late, as controllers follow it. Each of them follows the same log: it is read once for all.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_controllers::Change;

/// Changes that are kept for the next controller. One that is farther behind has the log read again.
const KEPT: usize = 256;

/// The end of the log, as far as it was read.
#[derive(Debug, Default)]
pub(crate) struct RecentChanges(Mutex<Recent>);

impl RecentChanges {
    /// No holder of the lock can leave what it guards half changed.
    pub(super) fn locked(&self) -> MutexGuard<'_, Recent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All changes after a version, up to another one.
#[derive(Debug, Default)]
pub(super) struct Recent {
    after: u64,
    until: u64,
    changes: VecDeque<Arc<Change>>,
}

impl Recent {
    /// Begins anew where it does not reach back to a version, or not as far.
    pub(super) fn reach(&mut self, version: u64) {
        if version < self.after || version > self.until {
            *self = Self {
                after: version,
                until: version,
                changes: VecDeque::new(),
            };
        }
    }

    /// Up to which version all changes are there.
    pub(super) const fn until(&self) -> u64 {
        self.until
    }

    /// Adds the next changes of the log, which reach up to a version.
    pub(super) fn add(&mut self, next: impl IntoIterator<Item = Change>, until: u64) {
        self.changes.extend(next.into_iter().map(Arc::new));
        self.until = until;
    }

    /// The changes after a version that it reaches back to. The oldest are forgotten afterwards.
    pub(super) fn after(&mut self, version: u64) -> Vec<Arc<Change>> {
        let first = self
            .changes
            .partition_point(|change| change.version <= version);
        let changes = self.changes.range(first..).cloned().collect();
        while self.changes.len() > KEPT
            && let Some(oldest) = self.changes.pop_front()
        {
            self.after = oldest.version;
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use agent_controllers::ChangeKind;
    use proto_node::meta::ObjectMeta;

    use super::*;

    fn change(version: u64) -> Change {
        Change {
            version,
            happened: ChangeKind::Put,
            kind: String::from("ConfigMap"),
            metadata: ObjectMeta::default(),
        }
    }

    fn versions_after(recent: &mut Recent, version: u64) -> Vec<u64> {
        let changes = recent.after(version);
        changes.iter().map(|change| change.version).collect()
    }

    #[test]
    fn what_was_read_for_one_is_there_for_the_next() {
        let mut recent = Recent::default();
        recent.reach(7);
        assert_eq!(recent.until(), 7);
        recent.add([8, 10].map(change), 12);
        assert_eq!(versions_after(&mut recent, 7), [8, 10]);
        for (version, wanted) in [(7, vec![8, 10]), (8, vec![10]), (9, vec![10]), (12, vec![])] {
            recent.reach(version);
            assert_eq!(
                (recent.until(), versions_after(&mut recent, version)),
                (12, wanted)
            );
        }
    }

    #[test]
    fn it_begins_anew_for_one_that_is_farther_behind_or_ahead() {
        for version in [6, 13] {
            let mut recent = Recent::default();
            recent.reach(7);
            recent.add([8, 10].map(change), 12);
            recent.reach(version);
            assert_eq!(recent.until(), version);
            assert_eq!(versions_after(&mut recent, version), [0; 0]);
        }
    }

    #[test]
    fn everything_is_given_out_once_and_little_is_kept() {
        let mut recent = Recent::default();
        recent.reach(0);
        let count = KEPT as u64 + 10;
        recent.add((1..=count).map(change), count);
        assert_eq!(
            versions_after(&mut recent, 0),
            (1..=count).collect::<Vec<_>>()
        );
        recent.reach(10);
        assert_eq!(recent.until(), count);
        assert_eq!(versions_after(&mut recent, 10).len(), KEPT);
        recent.reach(9);
        assert_eq!(recent.until(), 9);
    }
}
