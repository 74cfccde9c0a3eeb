//! The host's side of a console device: what stands behind its ports, shared by the device and by
//! whoever attaches peers. Both may come at any time, and neither waits for the other.

mod line;
mod peer;

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use vmm_sys::event;
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

pub use self::line::{ConsoleLine, ConsoleSize};
pub use self::peer::{AttachError, HostPort};
use crate::serial::ConsoleOutput;

/// Most named ports of a device: as many as QEMU's have room for.
pub const MAX_NAMED_PORTS: usize = 31;
/// Longest name of a port.
pub const MAX_NAME_BYTES: usize = 64;

/// Ports cannot be made as asked.
#[derive(Debug, thiserror::Error)]
pub enum ConsolePortsError {
    /// No port at all.
    #[error("there is neither a console nor a named port")]
    None,
    /// More than the device has numbers for.
    #[error("{0} named ports are more than {MAX_NAMED_PORTS}")]
    TooMany(usize),
    /// A name that guests could not make a file name of, or that two ports have.
    #[error(
        "the name {0:?} is not 1 to {MAX_NAME_BYTES} of a-z, A-Z, 0-9, '.', '_' and '-', or not the only one"
    )]
    Name(String),
    /// The host has no descriptor left.
    #[error("the host has no descriptors left")]
    Descriptors(#[from] io::Error),
}

/// What the console port is made of.
pub struct ConsoleSpec {
    /// Its name; empty for none.
    pub name: String,
    /// Where the guest's output goes.
    pub output: Arc<dyn ConsoleOutput>,
    /// Its size when the machine starts.
    pub size: ConsoleSize,
}

/// The ports of one device, from the host's side.
pub struct ConsolePorts {
    watch: Arc<Watch>,
    console: Option<Arc<ConsoleLine>>,
    named: Vec<Arc<HostPort>>,
}

impl ConsolePorts {
    /// A console, which is port 0, if there is to be one, and named ports from 1 on. Nobody is
    /// attached.
    ///
    /// # Errors
    /// Too many or no ports, names that cannot be, or a host without descriptors.
    pub fn new(
        console: Option<ConsoleSpec>,
        names: Vec<String>,
    ) -> Result<Arc<Self>, ConsolePortsError> {
        check(console.as_ref(), &names)?;
        let watch = Arc::new(Watch::new()?);
        let console = match console {
            Some(spec) => Some(Arc::new(ConsoleLine::new(spec, Arc::clone(&watch))?)),
            None => None,
        };
        let named = (1..)
            .zip(names)
            .map(|(number, name)| Arc::new(HostPort::new(number, name, Arc::clone(&watch))))
            .collect();
        Ok(Arc::new(Self {
            watch,
            console,
            named,
        }))
    }

    /// The console, if there is one.
    #[must_use]
    pub fn console(&self) -> Option<&Arc<ConsoleLine>> {
        self.console.as_ref()
    }

    /// The named ports, in the order of their numbers, which begin with 1.
    #[must_use]
    pub fn named(&self) -> &[Arc<HostPort>] {
        &self.named
    }

    pub(super) fn watch(&self) -> &Watch {
        &self.watch
    }
}

impl fmt::Debug for ConsolePorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.named.iter().map(|port| port.name());
        f.debug_list()
            .entries(self.console.iter().map(|console| console.name()))
            .entries(names)
            .finish()
    }
}

fn check(console: Option<&ConsoleSpec>, names: &[String]) -> Result<(), ConsolePortsError> {
    if console.is_none() && names.is_empty() {
        return Err(ConsolePortsError::None);
    }
    if names.len() > MAX_NAMED_PORTS {
        return Err(ConsolePortsError::TooMany(names.len()));
    }
    let own = console.map(|spec| &spec.name);
    let all: Vec<&String> = own
        .filter(|name| !name.is_empty())
        .into_iter()
        .chain(names)
        .collect();
    for (index, name) in all.iter().enumerate() {
        if !is_name(name) || all.iter().take(index).any(|before| before == name) {
            return Err(ConsolePortsError::Name((*name).clone()));
        }
    }
    Ok(())
}

/// Whether guests can make a file name of it.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(fits)
}

/// Events taken from the kernel at a time.
const BATCH: usize = 16;
/// Batches taken before other devices have their turn.
const MAX_BATCHES: usize = 4;
const WAKE: u64 = u64::MAX;

/// What the device polls: all its peers, and a way to wake it, behind one descriptor.
///
/// A device's event sources are fixed, and its peers come and go: hence an epoll of its own, which
/// is itself polled for edges.
pub(super) struct Watch {
    epoll: Epoll,
    wake: EventFd,
}

/// What happened since the last look.
#[derive(Debug, Default)]
pub(super) struct Happened {
    /// Somebody wants all ports to be looked at.
    pub(super) woken: bool,
    /// Numbers of the ports whose peers can be read or written, or are gone.
    pub(super) ports: Vec<u16>,
}

impl Watch {
    fn new() -> io::Result<Self> {
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
    pub(super) fn wake(&self) {
        event::signal(&self.wake);
    }

    fn add(&self, socket: RawFd, port: u16) -> io::Result<()> {
        let events =
            EventSet::IN | EventSet::OUT | EventSet::READ_HANG_UP | EventSet::EDGE_TRIGGERED;
        let event = EpollEvent::new(events, port.into());
        self.epoll.ctl(ControlOperation::Add, socket, event)
    }

    /// To be called before the socket is closed: whoever passed it may have kept a copy.
    fn remove(&self, socket: RawFd) {
        let removed = self
            .epoll
            .ctl(ControlOperation::Delete, socket, EpollEvent::default());
        // Fails only for one that is not watched.
        removed.unwrap_or_default();
    }

    /// Everything that happened, as far as a turn goes: the rest wakes the device again.
    pub(super) fn take(&self) -> Happened {
        let mut happened = Happened::default();
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
