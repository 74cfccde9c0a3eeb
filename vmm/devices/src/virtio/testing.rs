//! A driver for tests: programs a function the way a guest does and plays its side of the rings.

mod rings;

use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use vm_memory::{Bytes, GuestAddress};
use vmm_memory::{Layout, create_ram};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};

use super::device::VirtioDevice;
use super::transport::VirtioPciFunction;
use crate::event::EventSource;
use crate::pci::function::PciFunction;
use crate::pci::msi::testing::RecordingMsi;
use crate::state::Payloads;
use vmm_memory::GuestRam;

/// Descriptor flags.
pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
pub(crate) const INDIRECT: u16 = 4;

/// Guest RAM of a test.
pub(crate) const RAM_BYTES: usize = 0x40_0000;
/// Buffers of a test go here; rings are below.
pub(crate) const BUFFERS: u64 = 0x10_0000;

/// What `queue_msix_vector` reads after a vector that the function does not have.
const NO_VECTOR: u16 = 0xffff;

/// A descriptor as the driver writes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Desc {
    pub(crate) address: u64,
    pub(crate) bytes: u32,
    pub(crate) flags: u16,
    pub(crate) next: u16,
}

/// A readable buffer.
pub(crate) fn read(address: u64, bytes: u32) -> Desc {
    Desc {
        address,
        bytes,
        flags: 0,
        next: 0,
    }
}

/// A writable buffer.
pub(crate) fn write(address: u64, bytes: u32) -> Desc {
    Desc {
        flags: WRITE,
        ..read(address, bytes)
    }
}

pub(crate) struct Driver {
    pub(crate) function: VirtioPciFunction,
    pub(crate) memory: Arc<GuestRam>,
    pub(crate) msi: Arc<RecordingMsi>,
    size: u16,
    queues: usize,
    avail: Vec<u16>,
    seen: Vec<u16>,
    free: Vec<u16>,
}

impl Driver {
    /// A function after power-on.
    pub(crate) fn new(device: Box<dyn VirtioDevice>) -> Self {
        let layout = Layout::new(RAM_BYTES as u64, 40).unwrap();
        let memory = Arc::new(create_ram(&layout).unwrap());
        let msi = RecordingMsi::new();
        let queues = device.queue_sizes().len();
        let function = VirtioPciFunction::new(device, Arc::clone(&memory), msi.clone()).unwrap();
        let mut driver = Self {
            function,
            memory,
            msi,
            size: 0,
            queues,
            avail: vec![0; queues],
            seen: vec![0; queues],
            free: vec![0; queues],
        };
        driver.set_bus_master(true);
        driver
    }

    /// Lets the function access memory, or not. Whether it is to come to rest now.
    pub(crate) fn set_bus_master(&mut self, allowed: bool) -> bool {
        let command = u16::from(allowed) << 2;
        let effect = self.function.config_write(4, &command.to_le_bytes());
        assert!(!effect.bars_changed);
        effect.dma_ended
    }

    /// The same guest on a function that was made of this one's state.
    pub(crate) fn moved_to(self, device: Box<dyn VirtioDevice>) -> Self {
        self.moved_by(|_| device)
    }

    /// As [`moved_to`](Self::moved_to), for devices that have state of their own.
    pub(crate) fn moved_by(
        self,
        make: impl FnOnce(&mut Payloads) -> Box<dyn VirtioDevice>,
    ) -> Self {
        let mut payloads = Payloads::new(self.function.save());
        let device = make(&mut payloads);
        let msi = RecordingMsi::new();
        let memory = Arc::clone(&self.memory);
        let function =
            VirtioPciFunction::restored(device, memory, msi.clone(), &mut payloads).unwrap();
        payloads.finish().unwrap();
        Self {
            function,
            msi,
            ..self
        }
    }

    /// A function whose driver is ready, with queues of `size` and exactly `features`.
    pub(crate) fn ready(device: Box<dyn VirtioDevice>, size: u16, features: u64) -> Self {
        let mut driver = Self::new(device);
        driver.start(size, features);
        driver
    }

    /// Resets the function and makes it ready with queues of `size`, which are empty again.
    pub(crate) fn program_anew(&mut self, size: u16) {
        self.set_status(0);
        self.start(
            size,
            super::transport::VERSION_1 | super::transport::INDIRECT_DESC,
        );
    }

    /// Brings the function from reset to DRIVER_OK.
    pub(crate) fn start(&mut self, size: u16, features: u64) {
        self.size = size;
        self.avail = vec![0; self.queues];
        self.seen = vec![0; self.queues];
        self.free = vec![0; self.queues];
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.status() != 0 {
            assert!(Instant::now() < deadline, "a reset does not end");
            std::thread::yield_now();
        }
        self.set_status(1);
        self.set_status(3);
        self.negotiate(features);
        assert_eq!(self.status(), 11, "features refused");
        self.enable_msix();
        for queue in 0..self.queues {
            self.program_queue(queue);
        }
        self.set_status(15);
        self.settle();
    }

    pub(crate) fn negotiate(&mut self, features: u64) {
        let [a, b, c, d, e, f, g, h] = features.to_le_bytes();
        for (select, half) in [(0u32, [a, b, c, d]), (1, [e, f, g, h])] {
            self.common(8, &select.to_le_bytes());
            self.common(12, &half);
        }
        let status = self.status();
        self.set_status(status | 8);
    }

    fn enable_msix(&mut self) {
        let control = self.msix_control();
        let effect = self
            .function
            .config_write(control, &0x8000u16.to_le_bytes());
        assert!(!effect.bars_changed);
        for vector in 0..=self.queues as u64 {
            let entry = 0x4000 + vector * 16;
            self.function
                .bar_write(0, entry, &0xfee0_0000u64.to_le_bytes());
            self.function
                .bar_write(0, entry + 8, &0x30u64.to_le_bytes());
        }
        self.common(16, &0u16.to_le_bytes());
    }

    fn msix_control(&mut self) -> u16 {
        let mut at = [0];
        self.function.config_read(0x34, &mut at);
        u16::from(at[0]) + 2
    }

    fn program_queue(&mut self, queue: usize) {
        let rings = self.rings(queue);
        for page in 0..8 {
            self.memory
                .write_slice(&[0; 0x1000], GuestAddress(rings + page * 0x1000))
                .unwrap();
        }
        let index = u16::try_from(queue).unwrap();
        self.common(22, &index.to_le_bytes());
        self.common(24, &self.size.to_le_bytes());
        self.common(26, &(index + 1).to_le_bytes());
        if self.common_u16(26) == NO_VECTOR {
            // All queues have one: what drivers try next.
            self.common(26, &1u16.to_le_bytes());
        }
        self.common(32, &rings.to_le_bytes());
        self.common(40, &(rings + 0x4000).to_le_bytes());
        self.common(48, &(rings + 0x6000).to_le_bytes());
        self.common(28, &1u16.to_le_bytes());
    }

    /// Where a queue's rings are: table, avail at 0x4000, used at 0x6000.
    pub(crate) fn rings(&self, queue: usize) -> u64 {
        0x1_0000 + queue as u64 * 0x8000
    }

    pub(crate) fn common(&mut self, offset: u64, data: &[u8]) {
        self.function.bar_write(0, offset, data);
    }

    pub(crate) fn common_u16(&mut self, offset: u64) -> u16 {
        let mut data = [0; 2];
        self.function.bar_read(0, offset, &mut data);
        u16::from_le_bytes(data)
    }

    pub(crate) fn status(&mut self) -> u8 {
        let mut data = [0];
        self.function.bar_read(0, 20, &mut data);
        data[0]
    }

    pub(crate) fn set_status(&mut self, status: u8) {
        self.common(20, &[status]);
    }

    pub(crate) fn needs_reset(&mut self) -> bool {
        self.status() & 64 != 0
    }

    /// Kicks and lets the device work until it rests.
    pub(crate) fn kick(&mut self, queue: usize) {
        self.ring_kick(queue);
        self.settle();
    }

    /// Kicks, no more.
    pub(crate) fn ring_kick(&mut self, queue: usize) {
        let offset = 0x3000 + queue as u64 * 4;
        let index = u16::try_from(queue).unwrap();
        self.function.bar_write(0, offset, &index.to_le_bytes());
    }

    /// Delivers events until none is left; returns how many turns the device took.
    pub(crate) fn settle(&mut self) -> usize {
        let mut turns = 0;
        loop {
            let sources = self.function.event_sources();
            let ready: Vec<u64> = sources
                .iter()
                .filter(|source| source.token < 1 << 16 && is_readable(source.fd))
                .map(|source| source.token)
                .collect();
            if ready.is_empty() {
                return turns;
            }
            turns += ready.len();
            assert!(turns < 100_000, "the device does not come to rest");
            let kicks = self.function.io_events();
            for token in ready {
                // What is polled here is whether a count is there, not whether it grew.
                kicks[usize::try_from(token).unwrap()].event.read().unwrap();
                self.function.handle_event(token);
            }
        }
    }

    /// Waits for one of the device's own sources, at most `limit_ms`, and delivers what there is.
    /// False when time is up.
    pub(crate) fn settle_own(&mut self, limit_ms: i32) -> bool {
        let sources = self.function.event_sources();
        let own: Vec<EventSource> = sources
            .into_iter()
            .filter(|source| source.token >= 1 << 16)
            .collect();
        let epoll = Epoll::new().unwrap();
        for source in &own {
            let event = EpollEvent::new(EventSet::IN, source.token);
            epoll.ctl(ControlOperation::Add, source.fd, event).unwrap();
        }
        let mut ready = vec![EpollEvent::default(); own.len()];
        let count = loop {
            match epoll.wait(limit_ms, &mut ready) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                other => break other.unwrap(),
            }
        };
        for event in &ready[..count] {
            self.function.handle_event(event.data());
        }
        self.settle();
        count > 0
    }

    /// Interrupts of a queue since the last call.
    pub(crate) fn calls(&self, queue: usize) -> u64 {
        self.msi.raised(u16::try_from(queue).unwrap() + 1)
    }

    pub(crate) fn fill(&self, address: u64, data: &[u8]) {
        self.memory
            .write_slice(data, GuestAddress(address))
            .unwrap();
    }

    pub(crate) fn bytes(&self, address: u64, count: usize) -> Vec<u8> {
        let mut data = vec![0; count];
        self.memory
            .read_slice(&mut data, GuestAddress(address))
            .unwrap();
        data
    }
}

/// Descriptors as a driver gone mad writes them: some near what makes sense, some anywhere.
pub(crate) fn mad_descriptors() -> impl Strategy<Value = Vec<Desc>> {
    let near = (0..RAM_BYTES as u64, 0u32..8192);
    let edge = (RAM_BYTES as u64 - 64..RAM_BYTES as u64 + 64, 0u32..128);
    let place = prop_oneof![4 => near, 1 => edge, 1 => any::<(u64, u32)>()];
    let descriptor = (place, 0u16..8, 0u16..18).prop_map(|((address, bytes), flags, next)| Desc {
        address,
        bytes,
        flags,
        next,
    });
    prop::collection::vec(descriptor, 16)
}

fn is_readable(fd: std::os::fd::RawFd) -> bool {
    let epoll = Epoll::new().unwrap();
    let event = EpollEvent::new(EventSet::IN, 0);
    epoll.ctl(ControlOperation::Add, fd, event).unwrap();
    epoll.wait(0, &mut [EpollEvent::default()]).unwrap() == 1
}
