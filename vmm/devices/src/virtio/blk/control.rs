//! What can be changed about a disk while its guest runs.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::backend;
use super::counts::{Counters, DiskCounts};
use super::limits::DiskLimits;

/// A disk can not be changed that way.
#[derive(Debug, thiserror::Error)]
pub enum BlkControlError {
    /// The image's size can not be found out.
    #[error("the image's size can not be read")]
    Size(#[source] io::Error),
    /// The image is shorter than the disk.
    #[error(
        "the image has {image_bytes} bytes, less than the {disk_bytes} of the disk: a disk does not shrink under its guest"
    )]
    Shrunk {
        /// What the image has now.
        image_bytes: u64,
        /// What the guest was told.
        disk_bytes: u64,
    },
}

/// Wishes that the device has not seen to yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pending {
    /// The guest has not been told the disk's new size.
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
    sectors: AtomicU64,
    /// Counts sizes.
    generation: AtomicU8,
    stopped: AtomicBool,
    /// Error number of the first sync that failed; 0 before. Never cleared: Linux reports a failed
    /// writeback once and takes the pages for clean, so that a later sync would succeed without them.
    sync_errno: AtomicI32,
    /// Somebody syncs the image. The kernel keeps one error for all who sync one open file description,
    /// and the first to ask takes it.
    is_syncing: AtomicBool,
    pending: Mutex<Pending>,
    counters: Counters,
    /// Written for the device to look at `pending`, and by its ring.
    event: EventFd,
}

impl BlkControl {
    pub(super) fn new(image: File, logical_block_bytes: u32) -> io::Result<Self> {
        let sectors = backend::sectors(&image, logical_block_bytes)?;
        Ok(Self {
            image,
            logical_block_bytes,
            sectors: AtomicU64::new(sectors),
            generation: AtomicU8::new(0),
            stopped: AtomicBool::new(false),
            sync_errno: AtomicI32::new(0),
            is_syncing: AtomicBool::new(false),
            pending: Mutex::default(),
            counters: Counters::default(),
            event: EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK)?,
        })
    }

    /// Makes the disk as large as its image is now, and tells the guest. Returns the size in bytes.
    ///
    /// # Errors
    /// The image has become shorter than the disk, or its size is not to be had.
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
        match self.sync_errno.load(Ordering::Acquire) {
            0 => None,
            errno => Some(errno),
        }
    }

    /// Whether this is the first failure.
    pub(super) fn note_sync_failure(&self, errno: i32) -> bool {
        self.sync_errno
            .compare_exchange(0, errno, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Takes the turn to sync; false when somebody has it.
    pub(super) fn begin_sync(&self) -> bool {
        !self.is_syncing.swap(true, Ordering::AcqRel)
    }

    /// Gives the turn back. A failure must have been noted before.
    pub(super) fn end_sync(&self) {
        self.is_syncing.store(false, Ordering::Release);
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
        self.look();
    }

    /// Has the device look at its queues and what has ended.
    pub(super) fn look(&self) {
        // Fails only when the counter is at its end: it is readable then.
        self.event.write(1).unwrap_or_default();
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        // Wishes are whole whatever happened to another holder of the lock.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
