//! What a console device polls for its peers.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use vmm_sys::event;
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

/// Events taken from the kernel at a time.
const BATCH: usize = 16;

/// Batches taken before other devices have their turn.
const MAX_BATCHES: usize = 4;

const WAKE: u64 = u64::MAX;

/// What the device polls: all its peers, and a way to wake it, behind one descriptor.
///
/// A device's event sources are fixed, and its peers come and go: hence an epoll of its own, which
/// is itself polled for edges.
pub(in super::super) struct Watch {
    epoll: Epoll,
    wake: EventFd,
}

/// What happened since the last poll.
#[derive(Debug, Default)]
pub(in super::super) struct WatchEvents {
    /// Somebody wants all ports to be looked at.
    pub(in super::super) woken: bool,
    /// Numbers of the ports whose peers can be read or written, or are gone.
    pub(in super::super) ports: Vec<u16>,
}

impl Watch {
    pub(super) fn new() -> io::Result<Self> {
        let watch = Self {
            epoll: Epoll::new()?,
            wake: EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK)?,
        };
        let events = EventSet::IN | EventSet::EDGE_TRIGGERED;
        let event = EpollEvent::new(events, WAKE);
        let fd = watch.wake.as_raw_fd();
        watch.epoll.ctl(ControlOperation::Add, fd, event)?;
        Ok(watch)
    }

    /// Has the device look at all ports.
    pub(in super::super) fn wake(&self) {
        event::signal(&self.wake);
    }

    pub(super) fn add(&self, socket: RawFd, port: u16) -> io::Result<()> {
        let events =
            EventSet::IN | EventSet::OUT | EventSet::READ_HANG_UP | EventSet::EDGE_TRIGGERED;
        let event = EpollEvent::new(events, port.into());
        self.epoll.ctl(ControlOperation::Add, socket, event)
    }

    /// To be called before the socket is closed: whoever passed it may have kept a copy.
    pub(super) fn remove(&self, socket: RawFd) {
        let removed = self
            .epoll
            .ctl(ControlOperation::Delete, socket, EpollEvent::default());
        // Fails only for one that is not watched.
        removed.unwrap_or_default();
    }

    /// Everything that happened, as far as a turn goes: the rest wakes the device again.
    pub(in super::super) fn take(&self) -> WatchEvents {
        let mut happened = WatchEvents::default();
        let mut events = [EpollEvent::default(); BATCH];
        for _ in 0..MAX_BATCHES {
            // Fails only when it is interrupted, which a wait without end is.
            let count = self.epoll.wait(0, &mut events).unwrap_or(0);
            for event in events.iter().take(count) {
                if event.data() == WAKE {
                    event::clear(&self.wake);
                    happened.woken = true;
                } else {
                    happened.ports.extend(u16::try_from(event.data()));
                }
            }
            if count < BATCH {
                return happened;
            }
        }
        self.wake();
        happened
    }
}

impl AsRawFd for Watch {
    fn as_raw_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }
}
