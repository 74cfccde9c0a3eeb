use std::sync::atomic::{AtomicUsize, Ordering};

use vmm_devices::{ConfigEffect, EventSource, Payload, PciFunction, QuiesceError};
use vmm_memory::Layout;

use super::*;
use crate::pci::PlacedFunction;

/// Each event of it has the thread asked to pause.
struct Pausing {
    sources: Vec<EventFd>,
    served: Arc<AtomicUsize>,
    shared: Arc<Shared>,
}

impl PciFunction for Pausing {
    fn config_read(&mut self, _: u16, data: &mut [u8]) {
        data.fill(0xff);
    }

    fn config_write(&mut self, _: u16, _: &[u8]) -> ConfigEffect {
        ConfigEffect::default()
    }

    fn event_sources(&self) -> Vec<EventSource> {
        let sources = (0..).zip(&self.sources).map(|(token, source)| EventSource {
            token,
            fd: source.as_raw_fd(),
        });
        sources.collect()
    }

    fn handle_event(&mut self, _: u64) {
        self.shared.lock().pause_wanted = true;
        self.served.fetch_add(1, Ordering::SeqCst);
    }

    fn reset(&mut self) {}

    fn quiesce(&mut self) -> Result<(), QuiesceError> {
        Ok(())
    }

    fn resume(&mut self) {}

    fn save(&self) -> Vec<Payload> {
        Vec::new()
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "a thread of a test, not of a VMM"
)]
#[test]
fn a_pause_comes_between_two_events_of_a_batch_and_loses_none() {
    const EVENTS: usize = 3;
    let shared = Arc::new(Shared {
        state: Mutex::default(),
        changed: Condvar::new(),
        wake: EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK).unwrap(),
    });
    let served = Arc::new(AtomicUsize::new(0));
    let sources = (0..EVENTS).map(|_| EventFd::new(0).unwrap());
    let function = Pausing {
        sources: sources.collect(),
        served: Arc::clone(&served),
        shared: Arc::clone(&shared),
    };
    // All are there before the thread looks: they are one batch.
    let epoll = Epoll::new().unwrap();
    watch(&epoll, shared.wake.as_raw_fd(), WAKE).unwrap();
    for source in function.event_sources() {
        watch(&epoll, source.fd, source.token).unwrap();
    }
    for source in &function.sources {
        source.write(1).unwrap();
    }
    let address = PciAddress::new(0, 1).unwrap();
    let placed = PlacedFunction {
        address,
        function: Box::new(function),
        secondary_bus: None,
    };
    let layout = Layout::new(1 << 30, 40).unwrap();
    let bus = PciBus::new(Box::new(|_, _| None), layout, vec![placed]);
    let slots = bus.slots().filter(|slot| slot.address() == address);
    let slots: Vec<Arc<Slot>> = slots.cloned().collect();

    let handle = DeviceThread {
        shared: Arc::clone(&shared),
    };
    let thread = std::thread::spawn(move || serve(&epoll, &slots, &shared));
    for count in 1..=EVENTS {
        while served.load(Ordering::SeqCst) < count {
            std::thread::yield_now();
        }
        handle.wait_paused(PATIENCE).unwrap();
        assert_eq!(served.load(Ordering::SeqCst), count);
        handle.resume();
    }
    handle.ask_to_pause();
    handle.end();
    thread.join().unwrap();
}

/// Stays with its event until it is let go.
struct Stuck {
    source: EventFd,
    entered: std::sync::mpsc::Sender<()>,
    let_go: Mutex<std::sync::mpsc::Receiver<()>>,
}

impl PciFunction for Stuck {
    fn config_read(&mut self, _: u16, data: &mut [u8]) {
        data.fill(0xff);
    }

    fn config_write(&mut self, _: u16, _: &[u8]) -> ConfigEffect {
        ConfigEffect::default()
    }

    fn event_sources(&self) -> Vec<EventSource> {
        let fd = self.source.as_raw_fd();
        vec![EventSource { token: 0, fd }]
    }

    fn handle_event(&mut self, _: u64) {
        self.entered.send(()).unwrap();
        // Not for ever, so that whoever waits for that fails.
        let let_go = self.let_go.lock().unwrap();
        let_go.recv_timeout(4 * PATIENCE).ok();
    }

    fn reset(&mut self) {}

    fn save(&self) -> Vec<Payload> {
        Vec::new()
    }
}

#[test]
fn a_device_that_keeps_its_thread_is_waited_for_with_a_limit_and_named() {
    let (entered, seen) = std::sync::mpsc::channel();
    let (go, let_go) = std::sync::mpsc::channel();
    let source = EventFd::new(EFD_CLOEXEC).unwrap();
    source.write(1).unwrap();
    let address = PciAddress::new(0, 1).unwrap();
    let placed = PlacedFunction {
        address,
        function: Box::new(Stuck {
            source,
            entered,
            let_go: Mutex::new(let_go),
        }),
        secondary_bus: None,
    };
    let layout = Layout::new(1 << 30, 40).unwrap();
    let bus = PciBus::new(Box::new(|_, _| None), layout, vec![placed]);
    let own = BTreeMap::new();
    let placement = Placement::default();
    let threads = DeviceThreads::start(Threads::unconfined(), &bus, &own, &placement).unwrap();
    threads.resume();
    seen.recv().unwrap();
    threads.ask_to_pause();
    let [thread] = threads.0.as_slice() else {
        panic!("one thread")
    };
    let stuck = thread.wait_paused(Duration::from_millis(1)).unwrap_err();
    assert_eq!(stuck.device, Some(address));
    go.send(()).unwrap();
    threads.wait_paused().unwrap();
    threads.end();
}
