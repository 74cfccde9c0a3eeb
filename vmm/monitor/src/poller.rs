//! Which descriptors the main thread waits for.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};

const BATCH: usize = 16;

/// A console of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Terminal {
    /// The serial port.
    Serial,
    /// The console port of the virtio console.
    Virtio,
}

impl Terminal {
    /// Every terminal, for loops.
    pub const ALL: [Self; 2] = [Self::Serial, Self::Virtio];
}

/// What a descriptor is, for the main thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The control socket.
    Listener,
    /// SIGTERM and its like.
    Signals,
    /// The machine has news.
    Notices,
    /// The guest printed.
    ConsoleOutput(Terminal),
    /// The console has room for input.
    ConsoleInputSpace(Terminal),
    /// The attached console client.
    ConsoleClient(Terminal),
    /// The socket for peers of the named port of this number.
    PortListener(u16),
    /// A connected peer.
    Connection(u32),
}

impl Source {
    const FIRST_PORT: u64 = 0x1_0000;
    const FIRST_CONNECTION: u64 = 0x2_0000;

    fn to_id(self) -> u64 {
        match self {
            Self::Listener => 0,
            Self::Signals => 1,
            Self::Notices => 2,
            Self::ConsoleOutput(Terminal::Serial) => 3,
            Self::ConsoleInputSpace(Terminal::Serial) => 4,
            Self::ConsoleClient(Terminal::Serial) => 5,
            Self::ConsoleOutput(Terminal::Virtio) => 6,
            Self::ConsoleInputSpace(Terminal::Virtio) => 7,
            Self::ConsoleClient(Terminal::Virtio) => 8,
            Self::PortListener(number) => Self::FIRST_PORT + u64::from(number),
            Self::Connection(number) => Self::FIRST_CONNECTION + u64::from(number),
        }
    }

    fn from_id(id: u64) -> Option<Self> {
        Some(match id {
            0 => Self::Listener,
            1 => Self::Signals,
            2 => Self::Notices,
            3 => Self::ConsoleOutput(Terminal::Serial),
            4 => Self::ConsoleInputSpace(Terminal::Serial),
            5 => Self::ConsoleClient(Terminal::Serial),
            6 => Self::ConsoleOutput(Terminal::Virtio),
            7 => Self::ConsoleInputSpace(Terminal::Virtio),
            8 => Self::ConsoleClient(Terminal::Virtio),
            id => match id.checked_sub(Self::FIRST_CONNECTION) {
                Some(number) => Self::Connection(u32::try_from(number).ok()?),
                None => {
                    let number = id.checked_sub(Self::FIRST_PORT)?;
                    Self::PortListener(u16::try_from(number).ok()?)
                }
            },
        })
    }
}

/// What is waited for on one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Watched {
    fd: RawFd,
    readable: bool,
    writable: bool,
}

/// What happened to a source.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// Source that is ready.
    pub source: Source,
    /// Can be read, or the peer closed its sending side.
    pub readable: bool,
    /// Can be written.
    pub writable: bool,
    /// The peer is gone in both directions, or the descriptor failed.
    pub hung_up: bool,
}

/// Level-triggered polling of few descriptors.
pub struct Poller {
    epoll: Epoll,
    watched: BTreeMap<Source, Watched>,
}

impl Poller {
    /// Nothing is watched.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: Epoll::new()?,
            watched: BTreeMap::new(),
        })
    }

    /// Watches `fd` as `source` for what is given; a descriptor that the source had before has to be
    /// forgotten first.
    pub fn watch(
        &mut self,
        source: Source,
        fd: RawFd,
        readable: bool,
        writable: bool,
    ) -> io::Result<()> {
        let wanted = Watched {
            fd,
            readable,
            writable,
        };
        let operation = match self.watched.get(&source) {
            Some(present) if *present == wanted => return Ok(()),
            Some(present) if present.fd == fd => ControlOperation::Modify,
            _ => ControlOperation::Add,
        };
        let mut events = EventSet::empty();
        events.set(EventSet::IN, readable);
        events.set(EventSet::OUT, writable);
        self.epoll
            .ctl(operation, fd, EpollEvent::new(events, source.to_id()))?;
        self.watched.insert(source, wanted);
        Ok(())
    }

    /// Watches the source no more. To be called before its descriptor is closed.
    pub fn forget(&mut self, source: Source) {
        if let Some(watched) = self.watched.remove(&source) {
            // Fails only when the descriptor was closed, and then it is not watched either.
            drop(
                self.epoll
                    .ctl(ControlOperation::Delete, watched.fd, EpollEvent::default()),
            );
        }
    }

    /// Waits, at most for `limit` when there is one.
    pub fn wait(&self, limit: Option<Duration>) -> io::Result<Vec<Ready>> {
        let timeout = match limit {
            // A fraction of a millisecond must not become a busy loop.
            Some(limit) => i32::try_from(limit.as_millis()).unwrap_or(i32::MAX - 1) + 1,
            None => -1,
        };
        let mut events = [EpollEvent::default(); BATCH];
        let count = match self.epoll.wait(timeout, &mut events) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        Ok(events
            .iter()
            .take(count)
            .filter_map(|event| {
                let set = event.event_set();
                Some(Ready {
                    source: Source::from_id(event.data())?,
                    readable: set.contains(EventSet::IN),
                    writable: set.contains(EventSet::OUT),
                    hung_up: set.intersects(EventSet::HANG_UP | EventSet::ERROR),
                })
            })
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_is_known_by_its_number() {
        let mut sources = vec![Source::Listener, Source::Signals, Source::Notices];
        for terminal in Terminal::ALL {
            sources.extend([
                Source::ConsoleOutput(terminal),
                Source::ConsoleInputSpace(terminal),
                Source::ConsoleClient(terminal),
            ]);
        }
        sources.extend([0, 1, 31, u16::MAX].map(Source::PortListener));
        sources.extend([0, 1, u32::MAX].map(Source::Connection));
        for source in sources {
            assert_eq!(Source::from_id(source.to_id()), Some(source));
        }
    }
}
