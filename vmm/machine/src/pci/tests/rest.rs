//! When the bus holds its guest: the guest has stopped a function for which the host is still at work.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;

const BUS_MASTER: u8 = 4;
const SECONDARY_BUS_RESET: u8 = 0x40;
const BRIDGE_CONTROL: u16 = 0x3e;
const COMMAND: u16 = 4;

/// A function with something in flight until the test ends it.
struct Working {
    space: ConfigSpace,
    is_done: Arc<AtomicBool>,
}

impl PciFunction for Working {
    fn config_read(&mut self, offset: u16, data: &mut [u8]) {
        self.space.read(offset, data);
    }

    fn config_write(&mut self, offset: u16, data: &[u8]) -> ConfigEffect {
        let was_master = self.space.is_bus_master();
        self.space.write(offset, data);
        ConfigEffect {
            dma_ended: was_master && !self.space.is_bus_master(),
            ..ConfigEffect::default()
        }
    }

    fn event_sources(&self) -> Vec<EventSource> {
        Vec::new()
    }

    fn handle_event(&mut self, _: u64) {}

    fn reset(&mut self) {
        self.space.reset();
    }

    fn is_idle(&mut self) -> bool {
        self.is_done.load(Ordering::SeqCst)
    }

    fn save(&self) -> Vec<Payload> {
        Vec::new()
    }
}

/// A bus with such a function behind a root port.
struct Stopped {
    bus: PciBus,
    is_done: Arc<AtomicBool>,
    holds: Arc<AtomicUsize>,
}

impl Stopped {
    fn new() -> Self {
        let (device, secondary_bus) = PORTS[0];
        let is_done = Arc::new(AtomicBool::new(false));
        let working = Working {
            space: ConfigSpace::new(PciIdentity {
                vendor: 0x1af4,
                device: 0x1040,
                revision: 1,
                class: 0xff_0000,
                subsystem_vendor: 0x1af4,
                subsystem: 1,
            }),
            is_done: Arc::clone(&is_done),
        };
        let port = RootPort::new(device, true, Arc::new(NoMsi)).unwrap();
        let functions = vec![
            PlacedFunction {
                address: PciAddress::new(secondary_bus, 0).unwrap(),
                function: Box::new(working),
                secondary_bus: None,
            },
            PlacedFunction {
                address: PciAddress::new(0, device).unwrap(),
                function: Box::new(port),
                secondary_bus: Some(secondary_bus),
            },
        ];
        let layout = Layout::new(3 << 30, 40).unwrap();
        let mut bus = PciBus::new(recorder(&Arc::default()), layout, functions);
        bus.place().unwrap();
        let holds = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&holds);
        bus.when_stopped(Box::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        }));
        Self {
            bus,
            is_done,
            holds,
        }
    }

    /// How often the guest has been held after the write.
    fn holds_after(&self, bus: u8, device: u8, register: u16, data: u8) -> usize {
        ecam_write(&self.bus, ecam(bus, device, register), &[data, 0]);
        self.holds.load(Ordering::SeqCst)
    }
}

#[test]
fn a_guest_that_resets_a_bus_is_held_while_the_host_works_for_what_is_behind() {
    let stopped = Stopped::new();
    let (port, _) = PORTS[0];
    assert_eq!(
        stopped.holds_after(0, port, BRIDGE_CONTROL, SECONDARY_BUS_RESET),
        1
    );
    assert_eq!(stopped.holds_after(0, port, BRIDGE_CONTROL, 0), 1);
    stopped.is_done.store(true, Ordering::SeqCst);
    assert_eq!(
        stopped.holds_after(0, port, BRIDGE_CONTROL, SECONDARY_BUS_RESET),
        1
    );
}

#[test]
fn a_guest_that_takes_memory_from_a_function_is_held() {
    let stopped = Stopped::new();
    let (_, bus) = PORTS[0];
    assert_eq!(stopped.holds_after(bus, 0, COMMAND, BUS_MASTER), 0);
    assert_eq!(stopped.holds_after(bus, 0, COMMAND, 0), 1);
    assert_eq!(stopped.holds_after(bus, 0, COMMAND, 0), 1);
}
