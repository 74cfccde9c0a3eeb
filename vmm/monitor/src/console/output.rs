//! What a guest prints: a ring of the last of it, whose bytes are numbered from 0, and its log file.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use vmm_devices::serial::ConsoleOutput;
use vmm_sys::timer::Timer;

use crate::log_file::LogFile;

/// What a client may see of the past.
pub(super) const RING_BYTES: usize = 64 << 10;
/// When the main thread is this far behind, the guest's own thread writes the log: nothing is lost
/// there.
pub(super) const MAX_UNLOGGED_BYTES: u64 = 32 << 10;

/// How long the start of a line waits for its end. A serial port prints byte by byte, and to wake the
/// main thread for each costs more than to print it.
const LINE_PATIENCE: Duration = Duration::from_millis(1);
/// So much wakes the main thread at once, without the end of a line.
pub(super) const MAX_UNSEEN_BYTES: u64 = (RING_BYTES / 4) as u64;

/// The guest's side of a console.
pub struct Output {
    state: Mutex<OutputState>,
    wake: Timer,
}

/// When the main thread looks next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WakeTime {
    /// When something is printed.
    #[default]
    Unset,
    /// Within [`LINE_PATIENCE`].
    Soon,
    /// At once.
    Now,
}

impl WakeTime {
    fn delay(self) -> Duration {
        match self {
            Self::Soon => LINE_PATIENCE,
            Self::Unset | Self::Now => Duration::ZERO,
        }
    }
}

#[derive(Default)]
pub(super) struct OutputState {
    ring: VecDeque<u8>,
    /// Bytes ever printed; the ring holds the last of them.
    printed: u64,
    log: Option<LogFile>,
    /// Bytes that the log was given, of those ever printed.
    logged: u64,
    log_error: Option<io::Error>,
    /// Bytes that the main thread has looked at, of those ever printed.
    seen: u64,
    wake_at: WakeTime,
}

impl OutputState {
    /// Number of the oldest byte in the ring.
    pub(super) fn oldest(&self) -> u64 {
        self.printed - self.ring.len() as u64
    }

    /// Bytes ever printed.
    pub(super) fn printed(&self) -> u64 {
        self.printed
    }

    /// Bytes that are in the log, of those ever printed; none without a log.
    pub(super) fn logged(&self) -> Option<u64> {
        self.log.is_some().then_some(self.logged)
    }

    /// Bytes from number `from` on, at most `limit` of them, in one stretch.
    pub(super) fn stretch(&self, from: u64, limit: usize) -> &[u8] {
        let skip = usize::try_from(from.saturating_sub(self.oldest())).unwrap_or(usize::MAX);
        let (first, second) = self.ring.as_slices();
        let bytes = match skip.checked_sub(first.len()) {
            None => first.get(skip..),
            Some(skip) => second.get(skip..),
        };
        let bytes = bytes.unwrap_or_default();
        bytes.get(..limit.min(bytes.len())).unwrap_or_default()
    }

    /// Takes what the guest prints. Returns when to wake the main thread, if that is earlier now.
    pub(super) fn print(&mut self, bytes: &[u8]) -> Option<WakeTime> {
        for byte in bytes {
            if self.ring.len() == RING_BYTES {
                self.ring.pop_front();
            }
            self.ring.push_back(*byte);
            self.printed += 1;
            if self.printed - self.logged >= MAX_UNLOGGED_BYTES {
                self.flush_log();
            }
        }
        let is_line = bytes.contains(&b'\n') || self.printed - self.seen >= MAX_UNSEEN_BYTES;
        let wake_at = if is_line {
            WakeTime::Now
        } else {
            WakeTime::Soon
        };
        let is_earlier = wake_at > self.wake_at;
        self.wake_at = self.wake_at.max(wake_at);
        is_earlier.then_some(wake_at)
    }

    /// Why the log was given up, once.
    pub(super) fn take_log_error(&mut self) -> Option<io::Error> {
        self.log_error.take()
    }

    /// Gives the log what it has not got. A log that fails is given up, once, with its error kept.
    fn flush_log(&mut self) {
        let Some(mut log) = self.log.take() else {
            self.logged = self.printed;
            return;
        };
        self.logged = self.logged.max(self.oldest());
        while self.logged < self.printed {
            let bytes = self.stretch(self.logged, RING_BYTES);
            let length = bytes.len() as u64;
            if let Err(error) = log.append(bytes) {
                self.log_error = Some(error);
                self.logged = self.printed;
                return;
            }
            self.logged += length;
        }
        self.log = Some(log);
    }
}

impl Output {
    /// Nothing was printed, and nothing is logged.
    pub fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            state: Mutex::default(),
            wake: Timer::new()?,
        }))
    }

    /// Keeps a log from now on.
    pub(super) fn set_log(&self, log: LogFile) {
        let mut state = self.lock();
        state.logged = state.printed;
        state.log = Some(log);
    }

    /// Readable when the guest printed a line, or the start of one a moment ago.
    pub(super) fn event(&self) -> RawFd {
        self.wake.as_raw_fd()
    }

    /// What was printed, and all of it logged: from now on the main thread is woken again.
    pub(super) fn take_printed(&self) -> MutexGuard<'_, OutputState> {
        // A write in between sets it for nothing: one wake-up too many.
        drop(self.wake.clear());
        let mut state = self.lock();
        state.wake_at = WakeTime::Unset;
        state.seen = state.printed;
        state.flush_log();
        state
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, OutputState> {
        // Ring and numbers are whole after each step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConsoleOutput for Output {
    fn write(&self, bytes: &[u8]) {
        let wake_at = self.lock().print(bytes);
        // Without the lock: whoever is woken wants it.
        if let Some(wake_at) = wake_at {
            // No failure is known for a delay of moments.
            drop(self.wake.set(wake_at.delay()));
        }
    }
}
