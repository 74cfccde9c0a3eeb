//! Syncs of an image, and that one failed.
//!
//! Linux reports a failed writeback once to each open file description and takes the pages for clean
//! afterwards, and a device that refused a flush may have dropped its cache. So one failure is final:
//! every later sync of the disk fails without asking the host. For the same reason there is one sync at
//! a time: of two that run side by side one takes the error of the other's data.

use std::io;

use super::disk::Disk;
use super::engine::Begun;
use super::failure::Failure;
use super::image_sync::{RingOutcome, SyncBegun};
use super::request::Request;
use crate::notice::DeviceNotice;

/// The kernel's `ECANCELED`.
const ECANCELED: i32 = 125;

impl Disk {
    /// Whether a sync failed before.
    pub(super) fn has_sync_failed(&self) -> bool {
        self.control.sync_failure().is_some()
    }

    /// Whether a failure of `request` may be one of the sync that the kernel does at its end. Which part
    /// failed the kernel does not say.
    pub(super) fn may_be_of_sync(&self, request: Request) -> bool {
        let is_write = matches!(request, Request::Write(_) | Request::WriteZeroes { .. });
        self.backend.writes_sync && is_write
    }

    /// A sync failed: no later sync of the disk succeeds.
    pub(super) fn fail_sync(&self, errno: i32) -> Failure {
        if self.control.record_sync_failure(errno) {
            (self.notices)(DeviceNotice::SyncFailed { errno });
        }
        Failure::SyncFailed(errno)
    }

    /// Queues a sync in the ring under `slot`, which belongs to a request that waits for it, or carries it out.
    pub(super) fn begin_sync(&mut self, slot: usize) -> SyncBegun {
        if self.has_sync_failed() {
            return SyncBegun::Done(Err(Failure::SyncFailedBefore));
        }
        if !self.control.sync_turn().try_begin() {
            return SyncBegun::Busy;
        }
        if self.engine.begin_sync(slot) == Begun::Queued {
            self.sync.slot = Some(slot);
            return SyncBegun::Queued;
        }
        let outcome = self.backend.image.sync_data();
        SyncBegun::Done(self.end_sync(outcome))
    }

    /// Stores the outcome of a sync, and only then lets others begin one.
    fn end_sync(&self, outcome: io::Result<()>) -> Result<(), Failure> {
        let outcome = outcome.map_err(|error| match Failure::from(error) {
            Failure::Host(errno) => self.fail_sync(errno),
            other => other,
        });
        self.control.sync_turn().end();
        outcome
    }

    /// The next thing that the ring has ended.
    pub(super) fn next_outcome(&mut self) -> Option<RingOutcome> {
        let done = self.engine.ring()?.next_completion()?;
        if self.sync.slot != Some(done.slot) {
            return Some(RingOutcome::Request(done));
        }
        self.sync.slot = None;
        let outcome = done.result.map(|_| ());
        Some(match outcome {
            Err(error) if was_cancelled(&error) => {
                self.control.sync_turn().end();
                RingOutcome::SyncCancelled
            }
            outcome => RingOutcome::Sync(self.end_sync(outcome)),
        })
    }
}

/// Whether the ring gave a sync up before it began.
fn was_cancelled(error: &io::Error) -> bool {
    error.raw_os_error() == Some(ECANCELED)
        || matches!(
            error.kind(),
            io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
        )
}
