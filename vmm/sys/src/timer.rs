//! A timer as a descriptor, which fires once each time it is set.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

/// Readable once the time it was set to is over, until it is cleared or set again.
pub struct Timer(TimerFd);

impl Timer {
    /// A timer that is not set.
    ///
    /// # Errors
    /// The process or the host has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        Ok(Self(TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?))
    }

    /// Fires after `delay` (at least a nanosecond), and no more at the time it was set to before.
    ///
    /// # Errors
    /// None is known for a delay of less than centuries.
    pub fn set(&self, delay: Duration) -> io::Result<()> {
        let delay = TimeSpec::from_duration(delay.max(Duration::from_nanos(1)));
        self.0
            .set(Expiration::OneShot(delay), TimerSetTimeFlags::empty())?;
        Ok(())
    }

    /// Neither fires nor is readable until it is set.
    ///
    /// # Errors
    /// None is known.
    pub fn clear(&self) -> io::Result<()> {
        Ok(self.0.unset()?)
    }
}

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    fn fires_within(timer: &Timer, limit_ms: u16) -> bool {
        let mut fds = [PollFd::new(timer.0.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::from(limit_ms)).unwrap() == 1
    }

    #[test]
    fn a_timer_fires_when_set_and_not_once_cleared() {
        let timer = Timer::new().unwrap();
        assert!(!fires_within(&timer, 0));
        timer.set(Duration::ZERO).unwrap();
        assert!(fires_within(&timer, 10_000));
        timer.clear().unwrap();
        assert!(!fires_within(&timer, 0));
        timer.set(Duration::from_secs(1000)).unwrap();
        assert!(!fires_within(&timer, 0));
    }
}
