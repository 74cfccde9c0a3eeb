//! Files that a guest boots are not written to meanwhile.

use std::fs::{File, TryLockError};
use std::path::Path;

use super::error::KernelError;
use crate::beneath::BeneathError;

/// A disk that a guest writes to is no kernel, no initrd and no part of an image: its lock is exclusive (see
/// [`crate::disks`]), and this one is held for as long as somebody has the file.
pub(crate) fn shared(file: File, path: &Path) -> Result<File, KernelError> {
    match file.try_lock_shared() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(KernelError::InUse {
            path: path.display().to_string(),
        }),
        Err(TryLockError::Error(source)) => {
            let path = path.display().to_string();
            Err(BeneathError::Io { path, source }.into())
        }
    }
}
