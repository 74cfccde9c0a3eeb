//! Interrupts of a virtio function: which vector means what, and the ISR byte for pollers.

use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vmm_sys_util::eventfd::EventFd;

use crate::pci::msix::Msix;

/// "No vector" in the vector registers (VIRTIO 1.2, 4.1.4.3).
pub(crate) const NO_VECTOR: u16 = 0xffff;

/// ISR bit: a queue has used buffers.
const ISR_QUEUE: u8 = 1;
/// ISR bit: configuration or status changed.
const ISR_CONFIG: u8 = 2;

/// The interrupts of one function, shared by its transport and its queues.
pub(crate) struct Interrupts {
    msix: Mutex<Msix>,
    isr: AtomicU8,
    config_vector: AtomicU16,
    queue_vectors: Vec<AtomicU16>,
}

impl Interrupts {
    pub(crate) fn new(msix: Msix, queues: usize) -> Self {
        Self {
            msix: Mutex::new(msix),
            isr: AtomicU8::new(0),
            config_vector: AtomicU16::new(NO_VECTOR),
            queue_vectors: (0..queues).map(|_| AtomicU16::new(NO_VECTOR)).collect(),
        }
    }

    /// The MSI-X state. Its code does not panic while it holds the lock, so a poisoned lock guards
    /// sound data.
    pub(crate) fn msix(&self) -> MutexGuard<'_, Msix> {
        self.msix.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn config_vector(&self) -> u16 {
        self.config_vector.load(Ordering::Relaxed)
    }

    pub(crate) fn queue_vector(&self, queue: usize) -> u16 {
        self.queue_vectors
            .get(queue)
            .map_or(NO_VECTOR, |vector| vector.load(Ordering::Relaxed))
    }

    /// Takes a vector for configuration changes; one that does not exist becomes "no vector".
    pub(crate) fn set_config_vector(&self, vector: u16) {
        let vector = self.checked(vector);
        self.config_vector.store(vector, Ordering::Relaxed);
    }

    /// Takes a vector for a queue; one that does not exist becomes "no vector".
    pub(crate) fn set_queue_vector(&self, queue: usize, vector: u16) {
        let vector = self.checked(vector);
        if let Some(slot) = self.queue_vectors.get(queue) {
            slot.store(vector, Ordering::Relaxed);
        }
    }

    /// The ISR byte, which stays.
    pub(crate) fn isr(&self) -> u8 {
        self.isr.load(Ordering::Acquire)
    }

    /// Sets the ISR byte as it was saved.
    pub(crate) fn set_isr(&self, isr: u8) {
        self.isr
            .store(isr & (ISR_QUEUE | ISR_CONFIG), Ordering::Release);
    }

    /// Reads and clears the ISR byte.
    pub(crate) fn take_isr(&self) -> u8 {
        self.isr.swap(0, Ordering::AcqRel)
    }

    /// Tells the driver that configuration or status changed.
    pub(crate) fn signal_config(&self) {
        self.isr.fetch_or(ISR_CONFIG, Ordering::AcqRel);
        self.msix().raise(self.config_vector());
    }

    /// Tells the driver that a queue has used buffers.
    pub(crate) fn signal_queue(&self, queue: usize) {
        self.isr.fetch_or(ISR_QUEUE, Ordering::AcqRel);
        self.msix().raise(self.queue_vector(queue));
    }

    /// A device reset: no vectors, nothing to report. The MSI-X table is the function's and stays.
    pub(crate) fn reset(&self) {
        self.isr.store(0, Ordering::Release);
        self.config_vector.store(NO_VECTOR, Ordering::Relaxed);
        for vector in &self.queue_vectors {
            vector.store(NO_VECTOR, Ordering::Relaxed);
        }
    }

    fn checked(&self, vector: u16) -> u16 {
        if vector < self.msix().vectors() {
            vector
        } else {
            NO_VECTOR
        }
    }
}

/// The way from a device to its driver when its configuration changed.
#[derive(Clone)]
pub struct ConfigCall {
    pub(crate) interrupts: Arc<Interrupts>,
}

impl ConfigCall {
    /// Interrupts the driver: what it reads from configuration space is new.
    pub fn send(&self) {
        self.interrupts.signal_config();
    }
}

/// The way from one queue to the driver.
#[derive(Clone)]
pub(crate) struct QueueCall {
    pub(crate) interrupts: Arc<Interrupts>,
    pub(crate) queue: usize,
}

impl QueueCall {
    pub(crate) fn send(&self) {
        self.interrupts.signal_queue(self.queue);
    }

    /// The eventfd behind the vector that the queue has now.
    pub(crate) fn event(&self) -> Option<Arc<EventFd>> {
        let vector = self.interrupts.queue_vector(self.queue);
        self.interrupts.msix().event(vector)
    }
}
