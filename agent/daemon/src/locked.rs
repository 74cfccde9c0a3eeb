//! Locks that nobody poisons.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// No holder of these locks can leave what they guard half changed.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
