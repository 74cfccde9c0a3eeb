//! The balloon of a running machine.

use std::sync::Arc;

use vmm_devices::virtio::balloon::{BalloonControl, BalloonTargetError};

use crate::request::MachineHandle;

/// A balloon cannot be changed as asked.
#[derive(Debug, thiserror::Error)]
pub enum SetBalloonError {
    /// The machine has none, or is not built yet.
    #[error("the machine has no balloon")]
    NoBalloon,
    /// It cannot be that large.
    #[error(transparent)]
    Target(#[from] BalloonTargetError),
}

impl MachineHandle {
    /// The balloon, once the machine is built, if it has one.
    #[must_use]
    pub fn balloon(&self) -> Option<Arc<BalloonControl>> {
        self.board.balloon().cloned()
    }

    /// Asks the guest to do without `target_bytes`. Does not wait: how far it is stands in
    /// [`Status::balloon`](crate::Status::balloon). A guest that is paused learns of it when it goes on.
    ///
    /// # Errors
    /// There is no balloon, or it cannot be that large.
    pub fn set_balloon(&self, target_bytes: u64) -> Result<(), SetBalloonError> {
        let balloon = self.board.balloon().ok_or(SetBalloonError::NoBalloon)?;
        Ok(balloon.set_target(target_bytes)?)
    }
}
