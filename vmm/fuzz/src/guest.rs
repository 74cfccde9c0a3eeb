//! A virtio function on a small guest memory, and what happens around it: events of its descriptors,
//! interrupts that go nowhere.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use vm_memory::{Bytes, GuestAddress};
use vmm_devices::virtio::{VirtioDevice, VirtioPciFunction, transport};
use vmm_devices::{
    GuestRam, MsiBinding, MsiError, MsiMessage, NoticeSink, Payload, Payloads, PciFunction,
};
use vmm_memory::{Layout, create_ram};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

/// Guest memory.
pub const RAM_BYTES: u64 = 1 << 20;
/// Descriptors of each queue.
pub const QUEUE_SIZE: u16 = 16;
/// Queues whose rings have a place; those of a device beyond are never enabled.
pub const MAX_QUEUES: usize = 8;
/// Buffers begin here; rings are below.
pub const BUFFERS: u64 = 0x4_0000;

/// Events that a device may need until it rests. Each turn serves a hundred requests or so.
const MAX_TURNS: usize = 20_000;

/// How long the host may take for what was in flight at a reset.
const RESET_PATIENCE: Duration = Duration::from_secs(10);

/// The command register, and bus mastering in it.
const COMMAND: u16 = 4;
const COMMAND_MASTER: u16 = 1 << 2;

const VERSION_1: u64 = 1 << 32;
const DRIVER_OK: u8 = 15;

/// Interrupts that nobody hears.
#[derive(Default)]
pub struct NoMsi(Mutex<BTreeMap<u16, Arc<EventFd>>>);

impl MsiBinding for NoMsi {
    fn vector_event(&self, vector: u16) -> Result<Arc<EventFd>, MsiError> {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let event = events.entry(vector).or_insert_with(|| {
            Arc::new(EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC).expect("a descriptor"))
        });
        Ok(Arc::clone(event))
    }

    fn route(&self, _: u16, _: MsiMessage) -> Result<(), MsiError> {
        Ok(())
    }

    fn unroute(&self, _: u16) -> Result<(), MsiError> {
        Ok(())
    }
}

/// Where notices go that nobody reads.
pub fn nobody() -> NoticeSink {
    Arc::new(|_| {})
}

/// Guest memory of its usual size.
pub fn ram() -> Arc<GuestRam> {
    let layout = Layout::new(RAM_BYTES, 40).expect("a layout");
    Arc::new(create_ram(&layout).expect("memory"))
}

/// The function, and what its descriptors have to say.
pub struct Guest {
    /// The device under test, as it is on the PCI bus.
    pub function: VirtioPciFunction,
    /// Guest memory.
    pub memory: Arc<GuestRam>,
    events: Events,
    queues: usize,
    avail: Vec<u16>,
}

/// The descriptors of one function, watched as the machine does it.
struct Events(Epoll);

impl Events {
    fn of(function: &dyn PciFunction) -> Self {
        let epoll = Epoll::new().expect("a descriptor");
        for source in function.event_sources() {
            let interest = EventSet::IN | EventSet::EDGE_TRIGGERED;
            let event = EpollEvent::new(interest, source.token);
            epoll
                .ctl(ControlOperation::Add, source.fd as RawFd, event)
                .expect("a source");
        }
        Self(epoll)
    }

    fn next(&self) -> Option<u64> {
        let mut events = [EpollEvent::default()];
        match self.0.wait(0, &mut events) {
            Ok(1) => Some(events[0].data()),
            _ => None,
        }
    }
}

/// Delivers events of any function until none is left.
///
/// # Panics
/// It does not come to rest: a finding.
pub fn settle(function: &mut dyn PciFunction) {
    let events = Events::of(function);
    for _ in 0..MAX_TURNS {
        match events.next() {
            Some(token) => function.handle_event(token),
            None => return,
        }
    }
    panic!("the function does not come to rest");
}

impl Guest {
    /// A function after power-on.
    pub fn new(device: Box<dyn VirtioDevice>) -> Self {
        let memory = ram();
        let queues = device.queue_sizes().len();
        let binding = Arc::new(NoMsi::default());
        let function = VirtioPciFunction::new(device, Arc::clone(&memory), binding);
        let mut guest = Self::with(function.expect("a function"), memory, queues);
        guest.allow_memory_access();
        guest
    }

    /// Switches bus mastering on.
    fn allow_memory_access(&mut self) {
        let mut command = [0; 2];
        self.function.config_read(COMMAND, &mut command);
        let command = u16::from_le_bytes(command) | COMMAND_MASTER;
        let _ = self.function.config_write(COMMAND, &command.to_le_bytes());
    }

    /// Resets the function and waits until the host is done with what was in flight.
    fn reset(&mut self) {
        self.common(20, &[0]);
        let deadline = Instant::now() + RESET_PATIENCE;
        while self.status() != 0 {
            assert!(Instant::now() < deadline, "the function is not reset");
            std::thread::yield_now();
        }
    }

    fn with(function: VirtioPciFunction, memory: Arc<GuestRam>, queues: usize) -> Self {
        Self {
            events: Events::of(&function),
            function,
            memory,
            queues: queues.min(MAX_QUEUES),
            avail: vec![0; MAX_QUEUES],
        }
    }

    /// The same guest on a function that is made of `payloads`, if it can be.
    pub fn move_to(
        &mut self,
        device: Box<dyn VirtioDevice>,
        mut payloads: Payloads,
    ) -> Result<(), transport::BuildError> {
        let queues = device.queue_sizes().len();
        let binding = Arc::new(NoMsi::default());
        let memory = Arc::clone(&self.memory);
        let function =
            VirtioPciFunction::restored(device, Arc::clone(&memory), binding, &mut payloads)?;
        let avail = std::mem::take(&mut self.avail);
        *self = Self::with(function, memory, queues);
        self.avail = avail;
        self.function.resume();
        Ok(())
    }

    /// What would be saved now, if the device comes to rest.
    pub fn save(&mut self) -> Option<Vec<Payload>> {
        self.function.quiesce().ok()?;
        Some(self.function.save())
    }

    /// How many queues a program can name.
    pub fn queues(&self) -> usize {
        self.queues
    }

    /// Where the rings of a queue are: table, available ring, used ring, a page each.
    pub fn rings(queue: usize) -> [u64; 3] {
        let base = 0x1_0000 + queue as u64 * 0x4000;
        [base, base + 0x1000, base + 0x2000]
    }

    /// Writes guest memory, as far as there is some.
    pub fn write(&self, address: u64, data: &[u8]) {
        // What lies beyond is not written, as on a machine.
        let _ = self.memory.write(data, GuestAddress(address));
    }

    /// Writes to the common configuration.
    pub fn common(&mut self, offset: u64, data: &[u8]) {
        self.function.bar_write(0, offset, data);
    }

    /// The device status.
    pub fn status(&mut self) -> u8 {
        let mut status = [0];
        self.function.bar_read(0, 20, &mut status);
        status[0]
    }

    /// Resets the function and has its driver say that it is ready, with the features of `wanted` that
    /// there are.
    ///
    /// # Panics
    /// The function does not take an honest driver: a finding.
    pub fn start(&mut self, wanted: u64) {
        self.allow_memory_access();
        self.reset();
        self.common(20, &[3]);
        let mut offered = 0;
        for half in [0u32, 1] {
            self.common(0, &half.to_le_bytes());
            let mut features = [0; 4];
            self.function.bar_read(0, 4, &mut features);
            offered |= u64::from(u32::from_le_bytes(features)) << (32 * half);
        }
        for features in [offered & wanted | VERSION_1, VERSION_1] {
            self.negotiate(features);
            if self.status() == 11 {
                break;
            }
        }
        for queue in 0..self.queues {
            self.program(queue);
        }
        self.common(20, &[DRIVER_OK]);
        assert_eq!(self.status(), DRIVER_OK, "an honest driver is refused");
    }

    fn negotiate(&mut self, features: u64) {
        let [a, b, c, d, e, f, g, h] = features.to_le_bytes();
        for (half, bits) in [(0u32, [a, b, c, d]), (1, [e, f, g, h])] {
            self.common(8, &half.to_le_bytes());
            self.common(12, &bits);
        }
        self.common(20, &[11]);
    }

    fn program(&mut self, queue: usize) {
        let [table, avail, used] = Self::rings(queue);
        self.write(avail, &[0; 64]);
        self.write(used, &[0; 256]);
        self.avail[queue] = 0;
        let index = u16::try_from(queue).unwrap_or(0);
        self.common(22, &index.to_le_bytes());
        self.common(24, &QUEUE_SIZE.to_le_bytes());
        self.common(26, &(index + 1).to_le_bytes());
        self.common(32, &table.to_le_bytes());
        self.common(40, &avail.to_le_bytes());
        self.common(48, &used.to_le_bytes());
        self.common(28, &1u16.to_le_bytes());
    }

    /// Puts a head into the available ring.
    pub fn offer(&mut self, queue: usize, head: u16) {
        let [_, avail, _] = Self::rings(queue);
        let slot = u64::from(self.avail[queue] % QUEUE_SIZE);
        self.write(avail + 4 + slot * 2, &head.to_le_bytes());
        let next = self.avail[queue].wrapping_add(1);
        self.set_avail(queue, next);
    }

    /// Writes the index of the available ring.
    pub fn set_avail(&mut self, queue: usize, index: u16) {
        let [_, avail, _] = Self::rings(queue);
        self.avail[queue] = index;
        self.write(avail + 2, &index.to_le_bytes());
    }

    /// Kicks a queue.
    pub fn kick(&mut self, queue: usize) {
        let index = u16::try_from(queue).unwrap_or(0);
        let offset = 0x3000 + queue as u64 * 4;
        self.function.bar_write(0, offset, &index.to_le_bytes());
    }

    /// Lets the device work until it rests.
    ///
    /// # Panics
    /// It does not: a finding.
    pub fn settle(&mut self) {
        for _ in 0..MAX_TURNS {
            match self.events.next() {
                Some(token) => self.function.handle_event(token),
                None => return,
            }
        }
        panic!("the device does not come to rest");
    }
}
