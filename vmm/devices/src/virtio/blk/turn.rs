//! The turn to sync an image. The kernel keeps one error for all who sync one open file description, and the
//! first to ask takes it: who has the turn notes a failure before the next one begins.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A turn that one at a time has.
#[derive(Debug, Default)]
pub(super) struct SyncTurn {
    is_taken: Mutex<bool>,
    ended: Condvar,
}

impl SyncTurn {
    /// Takes the turn; false when somebody has it.
    pub(super) fn try_begin(&self) -> bool {
        !std::mem::replace(&mut *self.lock(), true)
    }

    /// Takes the turn once it is free; false when it is not within `patience`.
    pub(super) fn wait(&self, patience: Duration) -> bool {
        let waited = self
            .ended
            .wait_timeout_while(self.lock(), patience, |is_taken| *is_taken);
        let (mut is_taken, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !std::mem::replace(&mut *is_taken, true)
    }

    /// Gives the turn back.
    pub(super) fn end(&self) {
        *self.lock() = false;
        self.ended.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        // A flag is whole whatever happened to another holder of the lock.
        self.is_taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
