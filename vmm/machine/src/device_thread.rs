//! The threads that serve the event sources of devices: one for all, and those of their own that some
//! were given.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use vmm_sys::event;
use vmm_sys::threads::{ThreadKind, Threads};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use crate::pci::address::PciAddress;
use crate::pci::{PciBus, Slot};
use crate::placement::Placement;
use crate::stuck::StuckThread;

/// Events taken at a time.
const BATCH: usize = 16;
/// Sources are numbered by (slot index, token).
const WAKE: u64 = u64::MAX;
const TOKEN_BITS: u32 = 32;

/// The thread that has no name of its own.
const SHARED: &str = "devices";

/// A thread that serves a device is waited for so long when the machine is to hold still: it may be in a
/// system call that the host does not end.
const PATIENCE: Duration = Duration::from_secs(5);

/// Handle of all device threads.
pub(crate) struct DeviceThreads(Vec<DeviceThread>);

/// Handle of one.
struct DeviceThread {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    wake: EventFd,
}

#[derive(Debug, Default)]
struct State {
    pause_wanted: bool,
    is_paused: bool,
    end_wanted: bool,
    /// Whose event is served.
    serving: Option<PciAddress>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Two flags are whole whatever happened to another holder of the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeviceThreads {
    /// Starts the shared thread and one for each name in `own`, paused, with the sources of all
    /// functions on `bus` registered.
    pub(crate) fn start(
        threads: Threads,
        bus: &PciBus,
        own: &BTreeMap<PciAddress, String>,
        placement: &Placement,
    ) -> io::Result<Self> {
        // The shared thread is there even if it has nothing to do.
        let mut groups: BTreeMap<Option<&str>, Vec<Arc<Slot>>> =
            BTreeMap::from([(None, Vec::new())]);
        for slot in bus.slots() {
            let name = own.get(&slot.address()).map(String::as_str);
            groups.entry(name).or_default().push(Arc::clone(slot));
        }
        let started = groups
            .into_iter()
            .map(|(name, slots)| DeviceThread::start(threads, name, slots, placement));
        started.collect::<io::Result<_>>().map(Self)
    }

    /// Has each thread pause before the next event. Does not wait.
    pub(crate) fn ask_to_pause(&self) {
        self.0.iter().for_each(DeviceThread::ask_to_pause);
    }

    /// Waits until no thread touches a device any more. They must have been asked to pause.
    pub(crate) fn wait_paused(&self) -> Result<(), StuckThread> {
        self.0
            .iter()
            .try_for_each(|thread| thread.wait_paused(PATIENCE))
    }

    /// Lets the threads go on; what happened meanwhile is served now.
    pub(crate) fn resume(&self) {
        for thread in &self.0 {
            thread.resume();
        }
    }

    /// Ends the threads, once they are paused.
    pub(crate) fn end(&self) {
        for thread in &self.0 {
            thread.end();
        }
    }
}

impl DeviceThread {
    /// Registers the sources of `slots` and starts the thread, paused and in its place.
    fn start(
        threads: Threads,
        name: Option<&str>,
        slots: Vec<Arc<Slot>>,
        placement: &Placement,
    ) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        let wake = EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK)?;
        watch(&epoll, wake.as_raw_fd(), WAKE)?;
        for (index, slot) in (0u64..).zip(&slots) {
            let function = slot.function();
            for source in function.event_sources() {
                let token = source.token & ((1 << TOKEN_BITS) - 1);
                let id = index << TOKEN_BITS | token;
                watch(&epoll, source.fd, id)?;
            }
        }
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                pause_wanted: true,
                is_paused: false,
                end_wanted: false,
                serving: None,
            }),
            changed: Condvar::new(),
            wake,
        });
        let thread = Arc::clone(&shared);
        let full_name = name.map_or(SHARED.to_owned(), |name| format!("io-{name}"));
        let thread = threads.spawn(ThreadKind::Devices, full_name, move || {
            serve(&epoll, &slots, &thread);
        })?;
        if let Some(name) = name {
            placement.pin_io_thread(&thread, name)?;
        }
        Ok(Self { shared })
    }

    fn ask_to_pause(&self) {
        self.shared.lock().pause_wanted = true;
        event::signal(&self.shared.wake);
    }

    /// Waits until the thread touches no device any more, at most so long.
    fn wait_paused(&self, patience: Duration) -> Result<(), StuckThread> {
        let deadline = Instant::now() + patience;
        let mut state = self.shared.lock();
        while !state.is_paused {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(StuckThread {
                    device: state.serving,
                    waited: patience,
                });
            }
            let changed = &self.shared.changed;
            let waited = changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    fn resume(&self) {
        self.shared.lock().pause_wanted = false;
        self.shared.changed.notify_all();
    }

    fn end(&self) {
        self.shared.lock().end_wanted = true;
        self.shared.changed.notify_all();
    }
}

fn watch(epoll: &Epoll, fd: RawFd, id: u64) -> io::Result<()> {
    let interest = EventSet::IN | EventSet::EDGE_TRIGGERED;
    epoll.ctl(ControlOperation::Add, fd, EpollEvent::new(interest, id))
}

fn serve(epoll: &Epoll, slots: &[Arc<Slot>], shared: &Shared) {
    let mut events = [EpollEvent::default(); BATCH];
    while wait_while_paused(shared, None) {
        let count = match epoll.wait(-1, &mut events) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // The descriptor is ours and open; there is nothing that could be done.
            Err(error) => panic!("epoll_wait failed: {error}"),
        };
        for event in events.iter().take(count) {
            // The rest of a batch does not keep a pause waiting, and is not lost by it: its edges are
            // past, so that it is served when the thread goes on.
            let id = event.data();
            let slot = usize::try_from(id >> TOKEN_BITS)
                .ok()
                .and_then(|index| slots.get(index));
            if !wait_while_paused(shared, slot.map(|slot| slot.address())) {
                return;
            }
            if id == WAKE {
                event::clear(&shared.wake);
                continue;
            }
            if let Some(slot) = slot {
                slot.function().handle_event(id & ((1 << TOKEN_BITS) - 1));
            }
        }
    }
}

/// Whether the thread is to go on, with the device whose event is next.
fn wait_while_paused(shared: &Shared, next: Option<PciAddress>) -> bool {
    let mut state = shared.lock();
    state.serving = None;
    while state.pause_wanted {
        if state.end_wanted {
            return false;
        }
        state.is_paused = true;
        shared.changed.notify_all();
        state = shared
            .changed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner);
    }
    state.is_paused = false;
    state.serving = next;
    true
}

#[cfg(test)]
mod tests;
