//! A virtio device as a PCI function (VIRTIO 1.2, 4.1): modern interface only, MSI-X.

mod function;
mod layout;
mod registers;
mod state;

use std::collections::BTreeSet;
use std::sync::Arc;

use virtio_queue::{Queue, QueueT};
use vm_memory::GuestAddress;
use vmm_sys::event;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use self::layout::{BAR, BAR_BYTES, MAX_QUEUES, Offsets};
use self::registers::{
    DRIVER_OK, Effect, FEATURES_OK, NEEDS_RESET, QUEUE_VECTOR, QueueRegisters, Registers,
};
use super::device::{ActiveContext, DeviceEvent, VirtioDevice};
use super::interrupt::{ConfigCall, Interrupts, QueueCall};
use super::queue::VirtQueue;
use crate::pci::config::{ConfigSpace, LayoutError};
use crate::pci::msi::{MsiBinding, MsiError};
use crate::pci::msix::Msix;
use crate::state::{Payloads, StateError};
use vmm_memory::GuestRam;

/// `VIRTIO_F_INDIRECT_DESC`.
pub const INDIRECT_DESC: u64 = 1 << 28;
/// `VIRTIO_F_EVENT_IDX`.
pub const EVENT_IDX: u64 = 1 << 29;
/// `VIRTIO_F_VERSION_1`: the driver has to take it.
pub const VERSION_1: u64 = 1 << 32;

/// Offered by every device.
const TRANSPORT_FEATURES: u64 = INDIRECT_DESC | EVENT_IDX | VERSION_1;

/// Tokens of the device's own sources start here; those of the queues are their indexes.
const DEVICE_TOKENS: u64 = 1 << 16;

/// A virtio function could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A vector could not be set up.
    #[error("interrupts")]
    Msi(#[from] MsiError),
    /// The device has no queue, or more than kick registers and vectors are laid out for.
    #[error("device with {0} queues, 1 to {MAX_QUEUES} are supported")]
    QueueCount(usize),
    /// A queue size that the ring code refuses.
    #[error("queue size {0} is no power of two up to 32768")]
    QueueSize(u16),
    /// Configuration space is full.
    #[error("configuration space")]
    Layout(#[from] LayoutError),
    /// No eventfd for a kick.
    #[error("eventfd")]
    EventFd(#[source] std::io::Error),
    /// The state that it was to have cannot be.
    #[error("state")]
    State(#[from] StateError),
}

/// A virtio device on PCI.
pub struct VirtioPciFunction {
    device: Box<dyn VirtioDevice>,
    memory: Arc<GuestRam>,
    config: ConfigSpace,
    offsets: Offsets,
    registers: Registers,
    interrupts: Arc<Interrupts>,
    kicks: Vec<Arc<EventFd>>,
    /// The device owns its queues.
    active: bool,
    /// The driver has reset the device, and the host is not done with what the device had in flight.
    resetting: bool,
    /// Events that came while the device might not access memory.
    missed: BTreeSet<u64>,
}

impl VirtioPciFunction {
    /// Makes a function of `device`, reset and without addresses. It has one MSI-X vector for
    /// configuration, and one for each queue or for all.
    ///
    /// # Errors
    /// The device's queues cannot be laid out, or the host has no descriptor left.
    pub fn new(
        device: Box<dyn VirtioDevice>,
        memory: Arc<GuestRam>,
        binding: Arc<dyn MsiBinding>,
    ) -> Result<Self, BuildError> {
        let sizes = device.queue_sizes();
        let count = sizes.len();
        let for_queues = if device.shares_vector() { 1 } else { count };
        let vectors = u16::try_from(for_queues + 1).map_err(|_| BuildError::QueueCount(count))?;
        if count == 0 || count > MAX_QUEUES {
            return Err(BuildError::QueueCount(count));
        }
        for size in sizes {
            Queue::new(*size).map_err(|_| BuildError::QueueSize(*size))?;
        }
        let registers = Registers::new(sizes);
        let (config, offsets) = layout::config_space(device.kind(), vectors)?;
        let kicks = (0..count)
            .map(|_| EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC).map(Arc::new))
            .collect::<Result<_, _>>()
            .map_err(BuildError::EventFd)?;
        Ok(Self {
            interrupts: Arc::new(Interrupts::new(Msix::new(vectors, binding)?, count)),
            device,
            memory,
            config,
            offsets,
            registers,
            kicks,
            active: false,
            resetting: false,
            missed: BTreeSet::new(),
        })
    }

    /// Makes a function that goes on where the one of `payloads` was, once it is
    /// [resumed](crate::PciFunction::resume). `device` was made of its own state.
    ///
    /// # Errors
    /// As [`new`](Self::new), and when the state does not fit the device.
    pub fn restored(
        device: Box<dyn VirtioDevice>,
        memory: Arc<GuestRam>,
        binding: Arc<dyn MsiBinding>,
        payloads: &mut Payloads,
    ) -> Result<Self, BuildError> {
        let state = payloads.take()?;
        let mut function = Self::new(device, memory, binding)?;
        function.load(&state)?;
        Ok(function)
    }

    fn features(&self) -> u64 {
        self.device.features() | TRANSPORT_FEATURES
    }

    fn common_write(&mut self, offset: u64, data: &[u8]) {
        self.finish_reset();
        if self.resetting {
            // Another reset would change nothing, and all else is for a driver that waits.
            return;
        }
        match self.registers.write(offset, data, &self.interrupts) {
            Effect::None if self.active && offset == QUEUE_VECTOR => self.device.vectors_changed(),
            Effect::None => {}
            Effect::Reset => self.device_reset(),
            Effect::CheckFeatures => {
                let wanted = self.registers.driver_features;
                let known = wanted & !self.features() == 0 && wanted & VERSION_1 != 0;
                if known && self.device.accepts(wanted & !TRANSPORT_FEATURES) {
                    self.registers.status |= FEATURES_OK;
                }
            }
            Effect::Activate => self.activate(),
            Effect::Enable(index) => {
                let valid = (self.registers.queues.get(index))
                    .is_some_and(|queue| self.ring(queue, true).is_some());
                if let Some(queue) = self.registers.queues.get_mut(index) {
                    queue.enabled = valid;
                }
                if !valid {
                    self.fail();
                }
            }
        }
    }

    /// The ring that the registers describe, or nothing when it is misaligned or not all in RAM.
    fn ring(&self, registers: &QueueRegisters, ready: bool) -> Option<Queue> {
        let mut queue = Queue::new(registers.max_size).ok()?;
        queue.set_event_idx(self.registers.driver_features & EVENT_IDX != 0);
        if !ready {
            return Some(queue);
        }
        queue.try_set_size(registers.size).ok()?;
        let [descriptors, avail, used] =
            [registers.descriptors, registers.avail, registers.used].map(GuestAddress);
        queue.try_set_desc_table_address(descriptors).ok()?;
        queue.try_set_avail_ring_address(avail).ok()?;
        queue.try_set_used_ring_address(used).ok()?;
        queue.set_ready(true);
        let below = [registers.descriptors, registers.avail, registers.used]
            .iter()
            // The largest ring has 512 KiB; this keeps sums of addresses from overflowing.
            .all(|address| *address < u64::MAX - (1 << 20));
        // The avail ring at 0 is taken for "not set" by the ring code.
        (below && registers.avail != 0 && queue.is_valid(&*self.memory)).then_some(queue)
    }

    /// All queues as they are programmed, or nothing when a ring is wrong.
    fn queues(&self) -> Option<Vec<VirtQueue>> {
        (0..)
            .zip(&self.registers.queues)
            .zip(&self.kicks)
            .map(|((index, registers), kick)| {
                let ring = self.ring(registers, registers.enabled)?;
                let call = QueueCall {
                    interrupts: Arc::clone(&self.interrupts),
                    queue: usize::from(index),
                };
                let memory = Arc::clone(&self.memory);
                VirtQueue::new(index, ring, memory, Arc::clone(kick), call)
            })
            .collect()
    }

    fn context(&self, queues: Vec<VirtQueue>) -> ActiveContext {
        ActiveContext {
            memory: Arc::clone(&self.memory),
            queues,
            features: self.registers.driver_features,
            config_call: ConfigCall {
                interrupts: Arc::clone(&self.interrupts),
            },
        }
    }

    fn activate(&mut self) {
        let queues = self.queues();
        self.registers.status |= DRIVER_OK;
        let Some(queues) = queues else {
            return self.fail();
        };
        match self.device.activate(self.context(queues)) {
            Ok(()) => self.active = true,
            Err(_) => return self.fail(),
        }
        // A device that may not access memory yet serves nothing before it may.
        if !self.config.is_bus_master() && self.device.quiesce().is_err() {
            self.fail();
        }
    }

    /// The device cannot go on before the driver resets it.
    fn fail(&mut self) {
        if std::mem::take(&mut self.active) {
            self.device.reset();
        }
        self.registers.status |= NEEDS_RESET;
        if self.registers.status & DRIVER_OK != 0 {
            self.interrupts.signal_config();
        }
    }

    /// The driver's reset: the function's own state (BARs, MSI-X table) stays. The driver may use its
    /// memory for something else once the status reads 0 (VIRTIO 1.2, 4.1.4.3.1), so that it stays
    /// another while the host may write to that memory. With DEVICE_NEEDS_RESET alone, a driver that
    /// does not wait finds FEATURES_OK missing and gives the device up.
    fn device_reset(&mut self) {
        if std::mem::take(&mut self.active) {
            self.device.reset();
        }
        self.registers.reset();
        self.registers.status = NEEDS_RESET;
        self.missed.clear();
        self.resetting = true;
        self.finish_reset();
        self.interrupts.reset();
        for kick in &self.kicks {
            drain(kick);
        }
    }

    /// Ends a reset if the host is done.
    fn finish_reset(&mut self) {
        if self.resetting && self.device.is_idle() {
            self.resetting = false;
            self.registers.status = 0;
        }
    }

    fn deliver(&mut self, event: DeviceEvent) {
        self.finish_reset();
        if self.active && self.device.handle(event).is_err() {
            self.fail();
        }
    }

    /// BAR access by the window in configuration space, if it is set up as 4.1.4.9.1 wants.
    fn window(&self) -> Option<(u64, usize)> {
        let at = self.offsets.window;
        let mut bar = [0];
        self.config.read(at + 4, &mut bar);
        let offset = u64::from(self.config.u32_at(at + 8));
        let length = self.config.u32_at(at + 12);
        let valid = usize::from(bar[0]) == BAR
            && matches!(length, 1 | 2 | 4)
            && offset.is_multiple_of(u64::from(length))
            && offset < BAR_BYTES;
        valid.then_some((offset, usize::try_from(length).ok()?))
    }

    /// Whether an access touches the window's data.
    fn touches_window(&self, offset: u16, data: &[u8]) -> bool {
        let start = usize::from(self.offsets.window) + 16;
        let (first, end) = (usize::from(offset), usize::from(offset) + data.len());
        first < start + 4 && end > start
    }
}

/// Takes the count off an eventfd; there is nothing to do about one that has none.
fn drain(event: &EventFd) {
    event::clear(event);
}

#[cfg(test)]
mod tests;
