//! Changes to a disk while its guest runs.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use vmm_sys::event;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::backend;
use super::counts::{Counters, DiskCounts};
use super::limits::DiskLimits;
use super::turn::SyncTurn;
use crate::sync_failure::SyncFailureLatch;

/// How long whoever owns the machine waits for a sync of the device.
const SYNC_PATIENCE: Duration = Duration::from_secs(5);

/// A disk cannot be changed that way.
#[derive(Debug, thiserror::Error)]
pub enum BlkControlError {
    /// The image's size cannot be found out.
    #[error("the image's size cannot be read")]
    Size(#[source] io::Error),
    /// The image cannot be synced.
    #[error("the image cannot be synced")]
    SyncFailed(#[source] io::Error),
    /// The image could not be synced before, so that no sync succeeds any more.
    #[error(
        "the image could not be synced before, and data may be lost: its guest has to be powered off"
    )]
    SyncFailedBefore(#[source] io::Error),
    /// The device syncs the image, which takes too long.
    #[error("the image is being synced for more than {} s", SYNC_PATIENCE.as_secs())]
    SyncBusy,
    /// The image is shorter than the disk.
    #[error(
        "the image has {image_bytes} bytes, less than the {disk_bytes} of the disk: a disk does not shrink under its guest"
    )]
    Shrunk {
        /// What the image has now.
        image_bytes: u64,
        /// The capacity that the guest sees.
        disk_bytes: u64,
    },
}

/// Requests that the device's thread has not carried out yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pending {
    /// The disk grew, and the configuration interrupt is not sent yet.
    pub(super) grown: bool,
    /// New limits.
    pub(super) limits: Option<DiskLimits>,
    /// Try again what is held.
    pub(super) retry: bool,
}

/// A handle on a disk, for whoever owns the machine. Nothing here waits for the device.
#[derive(Debug)]
pub struct BlkControl {
    image: File,
    logical_block_bytes: u32,
    is_writable: bool,
    sectors: AtomicU64,
    /// Counts sizes.
    generation: AtomicU8,
    stopped: AtomicBool,
    sync_failure: SyncFailureLatch,
    sync_turn: SyncTurn,
    pending: Mutex<Pending>,
    counters: Counters,
    /// Written for the device to look at `pending`, and by its ring.
    event: EventFd,
}

impl BlkControl {
    pub(super) fn new(
        image: File,
        logical_block_bytes: u32,
        is_writable: bool,
    ) -> io::Result<Self> {
        let sectors = backend::sectors(&image, logical_block_bytes)?;
        Ok(Self {
            image,
            logical_block_bytes,
            is_writable,
            sectors: AtomicU64::new(sectors),
            generation: AtomicU8::new(0),
            stopped: AtomicBool::new(false),
            sync_failure: SyncFailureLatch::default(),
            sync_turn: SyncTurn::default(),
            pending: Mutex::default(),
            counters: Counters::default(),
            event: EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK)?,
        })
    }

    /// Makes the disk as large as its image is now, and notifies the guest by a configuration change. Returns the size in bytes.
    ///
    /// # Errors
    /// The image has become shorter than the disk, its size is not to be had, or it cannot be made
    /// durable.
    pub fn grow(&self) -> Result<u64, BlkControlError> {
        let now = backend::sectors(&self.image, self.logical_block_bytes)
            .map_err(BlkControlError::Size)?;
        let before = self.sectors();
        if now < before {
            return Err(BlkControlError::Shrunk {
                image_bytes: now * super::config::SECTOR_BYTES,
                disk_bytes: before * super::config::SECTOR_BYTES,
            });
        }
        if now > before {
            // What the guest writes beyond the old end, and flushes, must not be lost with the new one.
            self.sync()?;
            self.sectors.store(now, Ordering::Release);
            self.generation.fetch_add(1, Ordering::AcqRel);
            self.ask(|pending| pending.grown = true);
        }
        Ok(now * super::config::SECTOR_BYTES)
    }

    /// Changes the limits; all buckets are full again.
    pub fn set_limits(&self, limits: DiskLimits) {
        self.ask(|pending| pending.limits = Some(limits));
    }

    /// Whether the disk holds requests that the host failed, or that a snapshot had, and takes no others.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// What the disk has done since it was made.
    pub fn counts(&self) -> DiskCounts {
        self.counters.read()
    }

    /// Error number of the sync that failed, if one did: what the guest wrote may be lost, and no flush
    /// succeeds any more.
    pub fn sync_failure(&self) -> Option<i32> {
        self.sync_failure.errno()
    }

    /// Whether this is the first failure.
    pub(super) fn record_sync_failure(&self, errno: i32) -> bool {
        self.sync_failure.note(errno)
    }

    /// Whether the guest may write to the disk.
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Makes all data that is in the image durable. Waits for a sync of the device that is under way.
    ///
    /// # Errors
    /// It failed now or before, or the device's does not end.
    pub fn sync(&self) -> Result<(), BlkControlError> {
        if !self.sync_turn.wait(SYNC_PATIENCE) {
            return Err(BlkControlError::SyncBusy);
        }
        let outcome = match self.sync_failure() {
            Some(errno) => Err(BlkControlError::SyncFailedBefore(
                io::Error::from_raw_os_error(errno),
            )),
            None => self.image.sync_data().map_err(|error| {
                self.sync_failure.note_error(&error);
                BlkControlError::SyncFailed(error)
            }),
        };
        self.sync_turn.end();
        // The device may wait for the turn.
        self.wake_device();
        outcome
    }

    /// The turn to sync the image.
    pub(super) fn sync_turn(&self) -> &SyncTurn {
        &self.sync_turn
    }

    /// Has the device try again what it holds.
    pub fn retry(&self) {
        if self.stopped.swap(false, Ordering::AcqRel) {
            self.take_up();
        }
    }

    /// Has the device take up what waits, for whatever reason.
    pub(super) fn take_up(&self) {
        self.ask(|pending| pending.retry = true);
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(super) fn set_stopped(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    pub(super) fn clear_stopped(&self) {
        self.stopped.store(false, Ordering::Release);
    }

    pub(super) fn sectors(&self) -> u64 {
        self.sectors.load(Ordering::Acquire)
    }

    pub(super) fn generation(&self) -> u8 {
        self.generation.load(Ordering::Acquire)
    }

    pub(super) fn take_pending(&self) -> Pending {
        std::mem::take(&mut *self.lock())
    }

    pub(super) fn event(&self) -> &EventFd {
        &self.event
    }

    fn ask(&self, change: impl FnOnce(&mut Pending)) {
        change(&mut self.lock());
        self.wake_device();
    }

    /// Wakes the device to read its queues and completions.
    pub(super) fn wake_device(&self) {
        event::signal(&self.event);
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        // A panic of another holder of the lock leaves no request half written.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
