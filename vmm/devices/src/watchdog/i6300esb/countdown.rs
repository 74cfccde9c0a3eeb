//! Time that is left, which passes only while the machine runs.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use vmm_sys::timer::Timer;

/// A countdown whose end makes a descriptor readable.
pub(super) struct Countdown {
    timer: Timer,
    left: Left,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// Nothing is counted.
    Nothing,
    /// It passes.
    Until(Instant),
    /// It is kept for later.
    Held(Duration),
}

impl Countdown {
    /// One that counts nothing.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            timer: Timer::new()?,
            left: Left::Nothing,
        })
    }

    /// Counts down from `time`, from now on.
    pub(super) fn start(&mut self, time: Duration) {
        self.left = Left::Held(time);
        self.go_on();
    }

    /// As [`start`](Self::start), from the next [`go_on`](Self::go_on) on.
    pub(super) fn start_held(&mut self, time: Duration) {
        self.stop();
        self.left = Left::Held(time);
    }

    /// Counts nothing any more.
    pub(super) fn stop(&mut self) {
        self.left = Left::Nothing;
        // Nothing depends on it: whether the time is over is read from `left`.
        self.timer.clear().unwrap_or_default();
    }

    /// Keeps what is left.
    pub(super) fn hold(&mut self) {
        if let Some(left) = self.left() {
            self.start_held(left);
        }
    }

    /// Lets time pass again.
    pub(super) fn go_on(&mut self) {
        let Left::Held(time) = self.left else {
            return;
        };
        // The clock does not get near its end, and times here are below 20 minutes.
        let now = Instant::now();
        self.left = Left::Until(now.checked_add(time).unwrap_or(now));
        // It is our descriptor and open, and the time is short: nothing is known that could fail.
        self.timer.set(time).unwrap_or_default();
    }

    /// What is left, while something is counted.
    pub(super) fn left(&self) -> Option<Duration> {
        match self.left {
            Left::Nothing => None,
            Left::Until(end) => Some(end.saturating_duration_since(Instant::now())),
            Left::Held(time) => Some(time),
        }
    }

    /// Whether it has just come to its end: it then counts nothing any more.
    pub(super) fn take_end(&mut self) -> bool {
        let is_over = matches!(self.left, Left::Until(end) if end <= Instant::now());
        if is_over {
            self.stop();
        }
        is_over
    }
}

impl AsRawFd for Countdown {
    fn as_raw_fd(&self) -> RawFd {
        self.timer.as_raw_fd()
    }
}
