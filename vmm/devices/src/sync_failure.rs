//! Sync failures: the host failed to make written data durable.

use std::io;
use std::sync::atomic::{AtomicI32, Ordering};

/// The kernel's `EIO`.
const EIO: i32 = 5;
/// The kernel's `MAX_ERRNO`.
const MAX_ERRNO: i32 = 4095;

/// Error number of the first sync of an image that failed; 0 before. Never cleared: Linux reports a
/// failed writeback once and takes the pages for clean, so that a later sync would succeed without them.
#[derive(Debug, Default)]
pub struct SyncFailureLatch(AtomicI32);

impl SyncFailureLatch {
    /// The error number, once a sync has failed.
    pub fn errno(&self) -> Option<i32> {
        match self.0.load(Ordering::Acquire) {
            0 => None,
            errno => Some(errno),
        }
    }

    /// Whether this is the first failure.
    pub(crate) fn note(&self, errno: i32) -> bool {
        self.0
            .compare_exchange(0, errno, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Notes the failure of a sync.
    pub(crate) fn note_error(&self, error: &io::Error) {
        self.note(error.raw_os_error().unwrap_or(EIO));
    }
}

/// The error number of a state, which has 0 where no sync failed; an error with what is none.
pub(crate) fn saved_errno(errno: i32) -> Result<Option<i32>, String> {
    match errno {
        0 => Ok(None),
        errno if (1..=MAX_ERRNO).contains(&errno) => Ok(Some(errno)),
        errno => Err(format!("a sync that failed with error {errno}")),
    }
}
