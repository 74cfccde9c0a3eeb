//! Requests to a balloon, and its state, while its guest runs.

use std::io;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use vmm_sys::event;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::config::BALLOON_PAGE_BYTES;
use super::stats::BalloonStats;

/// A balloon cannot be made that large.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BalloonTargetError {
    /// Not whole pages.
    #[error("a balloon of {0} bytes is no multiple of {BALLOON_PAGE_BYTES}")]
    NotPages(u64),
    /// Larger than memory, or than `num_pages` can express.
    #[error("a balloon of {target_bytes} bytes is larger than the guest's {limit_bytes}")]
    TooLarge {
        /// Target asked for.
        target_bytes: u64,
        /// The lower of guest memory and what `num_pages` can express.
        limit_bytes: u64,
    },
}

/// Size of a balloon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BalloonSize {
    /// What the guest is asked for, in bytes.
    pub target_bytes: u64,
    /// What the guest says that it does without, in bytes: not more than its memory, whatever it says.
    pub actual_bytes: u64,
}

/// Statistics that the guest reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatsReport {
    /// The values.
    pub stats: BalloonStats,
    /// How long ago. The time between a snapshot and its restore does not count.
    pub age: Duration,
}

/// Requests that the device's thread has not carried out yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pending {
    /// The target changed, and the configuration interrupt is not sent yet.
    pub(super) target: bool,
    /// The guest is to be asked for statistics.
    pub(super) stats: bool,
}

/// Statistics as the guest last sent them.
#[derive(Clone, Copy, Debug)]
struct GuestStats {
    stats: BalloonStats,
    at: Instant,
    /// Their age at `at`; more than zero only after a restore.
    age: Duration,
}

#[derive(Debug, Default)]
struct Shared {
    pending: Pending,
    guest_stats: Option<GuestStats>,
}

/// A handle on a balloon, for whoever owns the machine. Nothing here waits for the device or the
/// guest.
#[derive(Debug)]
pub struct BalloonControl {
    limit_pages: u32,
    target_pages: AtomicU32,
    actual_pages: AtomicU32,
    /// Counts targets.
    generation: AtomicU8,
    released_bytes: AtomicU64,
    shared: Mutex<Shared>,
    /// Written for the device to look at what is pending.
    event: EventFd,
}

impl BalloonControl {
    /// For a guest with `ram_bytes` of memory.
    pub(super) fn new(ram_bytes: u64) -> io::Result<Self> {
        Ok(Self {
            limit_pages: u32::try_from(ram_bytes / BALLOON_PAGE_BYTES).unwrap_or(u32::MAX),
            target_pages: AtomicU32::new(0),
            actual_pages: AtomicU32::new(0),
            generation: AtomicU8::new(0),
            released_bytes: AtomicU64::new(0),
            shared: Mutex::default(),
            event: EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK)?,
        })
    }

    /// Asks the guest to do without `bytes`: it comes near in its own time, as far as it can.
    ///
    /// # Errors
    /// Not whole pages, or more than all memory.
    pub fn set_target(&self, bytes: u64) -> Result<(), BalloonTargetError> {
        if !bytes.is_multiple_of(BALLOON_PAGE_BYTES) {
            return Err(BalloonTargetError::NotPages(bytes));
        }
        let too_large = BalloonTargetError::TooLarge {
            target_bytes: bytes,
            limit_bytes: u64::from(self.limit_pages) * BALLOON_PAGE_BYTES,
        };
        let pages = u32::try_from(bytes / BALLOON_PAGE_BYTES)
            .ok()
            .filter(|pages| *pages <= self.limit_pages)
            .ok_or(too_large)?;
        if self.target_pages.swap(pages, Ordering::AcqRel) != pages {
            self.generation.fetch_add(1, Ordering::AcqRel);
            self.ask(|pending| pending.target = true);
        }
        Ok(())
    }

    /// Has the guest asked for new statistics; they come in its own time.
    pub fn refresh_stats(&self) {
        self.ask(|pending| pending.stats = true);
    }

    /// The target, and the size that the driver reported.
    pub fn size(&self) -> BalloonSize {
        let bytes = |pages: u32| u64::from(pages) * BALLOON_PAGE_BYTES;
        BalloonSize {
            target_bytes: bytes(self.target_pages()),
            actual_bytes: bytes(self.actual_pages().min(self.limit_pages)),
        }
    }

    /// The last statistics; `None` until the guest's driver reports some.
    pub fn stats(&self) -> Option<StatsReport> {
        let last = self.lock().guest_stats?;
        Some(StatsReport {
            stats: last.stats,
            age: last.age.saturating_add(last.at.elapsed()),
        })
    }

    /// How many bytes went back to the host since this device was made, by inflation and by reports.
    /// A page that goes back twice counts twice.
    pub fn released_bytes(&self) -> u64 {
        self.released_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn target_pages(&self) -> u32 {
        self.target_pages.load(Ordering::Acquire)
    }

    /// As the driver said.
    pub(super) fn actual_pages(&self) -> u32 {
        self.actual_pages.load(Ordering::Acquire)
    }

    pub(super) fn set_actual_pages(&self, pages: u32) {
        self.actual_pages.store(pages, Ordering::Release);
    }

    pub(super) fn generation(&self) -> u8 {
        self.generation.load(Ordering::Acquire)
    }

    pub(super) fn add_released(&self, bytes: u64) {
        self.released_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn set_stats(&self, stats: BalloonStats, age: Duration) {
        self.lock().guest_stats = Some(GuestStats {
            stats,
            at: Instant::now(),
            age,
        });
    }

    /// The driver is gone, and what it said with it.
    pub(super) fn forget_driver(&self) {
        self.set_actual_pages(0);
        self.lock().guest_stats = None;
    }

    pub(super) fn take_pending(&self) -> Pending {
        std::mem::take(&mut self.lock().pending)
    }

    pub(super) fn event(&self) -> &EventFd {
        &self.event
    }

    fn ask(&self, change: impl FnOnce(&mut Pending)) {
        change(&mut self.lock().pending);
        event::signal(&self.event);
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // A panic of another holder of the lock leaves no request or value half written.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
