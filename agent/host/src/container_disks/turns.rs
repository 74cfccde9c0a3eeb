//! Who makes which disk.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::OwnedMutexGuard;

/// Disks that are being made, by key. Several names may mean one image, and whoever pulled it by another name at the same time
/// waits for the one who makes its disk.
#[derive(Debug, Clone, Default)]
pub(crate) struct MakingTurns(Arc<Mutex<Locks>>);

type Locks = HashMap<String, Weak<tokio::sync::Mutex<()>>>;

impl MakingTurns {
    /// The turn for one disk; the next has it when it is dropped.
    pub(super) async fn take(&self, key: &str) -> OwnedMutexGuard<()> {
        let lock = self.lock_of(key);
        lock.lock_owned().await
    }

    fn lock_of(&self, key: &str) -> Arc<tokio::sync::Mutex<()>> {
        // Entries are whole whatever happened to another holder of the lock.
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = locks.get(key).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::new(tokio::sync::Mutex::new(()));
        locks.insert(key.to_owned(), Arc::downgrade(&lock));
        lock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_at_a_time_makes_a_disk_and_others_go_on() {
        let turns = MakingTurns::default();
        let first = turns.take("a").await;
        let same = turns.lock_of("a");
        assert!(same.try_lock().is_err());
        drop(turns.take("b").await);
        drop(first);
        assert!(same.try_lock().is_ok());
        drop(same);
        drop(turns.take("c").await);
        assert!(turns.lock_of("d").try_lock().is_ok());
        assert_eq!(turns.0.lock().unwrap().len(), 1);
    }
}
