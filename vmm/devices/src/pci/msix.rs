//! MSI-X: vector table, pending bits, masks.
//!
//! A vector is routed (its irqfd is connected) exactly while MSI-X is enabled and neither the
//! function nor the vector is masked. A vector raised while it is not routed becomes pending, and
//! is sent when it is routed again. With MSI-X disabled nothing is raised: there is no INTx, and
//! drivers poll.

use std::sync::Arc;

use vmm_sys::event;
use vmm_sys_util::eventfd::EventFd;

use super::msi::{MsiBinding, MsiError, MsiMessage};

/// Bytes of a table entry.
const ENTRY_BYTES: u64 = 16;
/// Vector control: the only bit that there is.
const VECTOR_MASKED: u32 = 1;
/// Message control: MSI-X enable.
pub(crate) const CONTROL_ENABLE: u16 = 1 << 15;
/// Message control: function mask.
pub(crate) const CONTROL_MASK: u16 = 1 << 14;

/// Most vectors that a table can have (11 bits of size).
const MAX_VECTORS: usize = 2048;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    message: MsiMessage,
    control: u32,
    pending: bool,
    /// The message that the irqfd is connected with.
    routed: Option<MsiMessage>,
}

/// After a reset every vector is masked.
const POWER_ON: Entry = Entry {
    message: MsiMessage {
        address: 0,
        data: 0,
    },
    control: VECTOR_MASKED,
    pending: false,
    routed: None,
};

/// One entry of the table, as it is kept.
#[derive(Clone, PartialEq, prost::Message)]
pub struct VectorState {
    /// Message address.
    #[prost(uint64, tag = "1")]
    address: u64,
    /// Message data.
    #[prost(uint32, tag = "2")]
    data: u32,
    /// Mask bit.
    #[prost(bool, tag = "3")]
    masked: bool,
    /// Pending bit.
    #[prost(bool, tag = "4")]
    pending: bool,
}

/// The MSI-X state of one function.
pub struct Msix {
    entries: Vec<Entry>,
    events: Vec<Arc<EventFd>>,
    enabled: bool,
    masked: bool,
    binding: Arc<dyn MsiBinding>,
}

impl Msix {
    /// A table of `vectors` entries, at most 2048, all masked.
    ///
    /// # Errors
    /// The eventfd of a vector cannot be made.
    pub fn new(vectors: u16, binding: Arc<dyn MsiBinding>) -> Result<Self, MsiError> {
        let count = usize::from(vectors).min(MAX_VECTORS);
        let events = (0..vectors)
            .take(count)
            .map(|vector| binding.vector_event(vector))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            entries: vec![POWER_ON; count],
            events,
            enabled: false,
            masked: false,
            binding,
        })
    }

    /// Number of vectors.
    pub fn vectors(&self) -> u16 {
        u16::try_from(self.entries.len()).unwrap_or(u16::MAX)
    }

    /// Takes a new value of message control.
    pub fn set_control(&mut self, control: u16) {
        self.enabled = control & CONTROL_ENABLE != 0;
        self.masked = control & CONTROL_MASK != 0;
        for vector in 0..self.vectors() {
            self.update(vector);
        }
    }

    /// Raises a vector: sends it, or makes it pending while it is masked.
    pub fn raise(&mut self, vector: u16) {
        let index = usize::from(vector);
        let (Some(entry), Some(signal)) = (self.entries.get_mut(index), self.events.get(index))
        else {
            return;
        };
        if !self.enabled {
            return;
        }
        if entry.routed.is_none() {
            entry.pending = true;
        } else {
            event::signal(signal);
        }
    }

    /// The eventfd of a vector, for somebody else to raise it: what is written while it is not routed
    /// is sent when it is.
    pub fn event(&self, vector: u16) -> Option<Arc<EventFd>> {
        self.events.get(usize::from(vector)).map(Arc::clone)
    }

    /// Reads the table. Any width; what lies beyond the table is zero.
    pub fn read_table(&self, offset: u64, data: &mut [u8]) {
        for (at, byte) in from(offset).zip(data) {
            let entry = usize::try_from(at / ENTRY_BYTES).ok();
            let image = entry
                .and_then(|index| self.entries.get(index))
                .map_or([0; 16], image_of);
            let within = usize::try_from(at % ENTRY_BYTES).unwrap_or(0);
            *byte = image.get(within).copied().unwrap_or(0);
        }
    }

    /// Writes the table. Drivers must use aligned accesses of 4 or 8 bytes (PCI 3.0, 6.8.2); others
    /// are dropped.
    pub fn write_table(&mut self, offset: u64, data: &[u8]) {
        let width = data.len() as u64;
        if !matches!(width, 4 | 8) || !offset.is_multiple_of(width) {
            return;
        }
        for (at, word) in from(offset).step_by(4).zip(data.chunks_exact(4)) {
            if let Ok(word) = <[u8; 4]>::try_from(word) {
                self.write_word(at, u32::from_le_bytes(word));
            }
        }
        if let Ok(vector) = u16::try_from(offset / ENTRY_BYTES) {
            self.update(vector);
        }
    }

    /// Reads the pending bits. Any width; what lies beyond is zero.
    pub fn read_pending(&self, offset: u64, data: &mut [u8]) {
        for (at, byte) in from(offset).zip(data) {
            let first = usize::try_from(at).unwrap_or(usize::MAX).saturating_mul(8);
            let eight = self.entries.iter().skip(first).take(8);
            *byte = eight.enumerate().fold(0, |bits, (bit, entry)| {
                bits | u8::from(entry.pending) << bit
            });
        }
    }

    /// The table with its pending bits.
    pub fn vector_states(&self) -> Vec<VectorState> {
        let state = |entry: &Entry| VectorState {
            address: entry.message.address,
            data: entry.message.data,
            masked: entry.control & VECTOR_MASKED != 0,
            pending: entry.pending,
        };
        self.entries.iter().map(state).collect()
    }

    /// Takes message control and a table as they were saved, and connects what is not masked.
    /// False, and nothing is changed, when the table has another size. What is pending is sent by
    /// [`send_pending`](Self::send_pending): the guest's interrupt controllers may not be theirs yet.
    pub fn load(&mut self, control: u16, vectors: &[VectorState]) -> bool {
        if vectors.len() != self.entries.len() {
            return false;
        }
        for (entry, saved) in self.entries.iter_mut().zip(vectors) {
            entry.message = MsiMessage {
                address: saved.address & !0b11,
                data: saved.data,
            };
            entry.control = u32::from(saved.masked);
        }
        self.set_control(control);
        for (entry, saved) in self.entries.iter_mut().zip(vectors) {
            entry.pending = saved.pending;
        }
        true
    }

    /// Sends vectors that are pending and not masked: after [`load`](Self::load), once the guest
    /// can take them.
    pub fn send_pending(&mut self) {
        for (entry, signal) in self.entries.iter_mut().zip(&self.events) {
            let due = entry.pending && entry.routed.is_some();
            if due {
                event::signal(signal);
            }
            entry.pending &= !due;
        }
    }

    /// Disconnects and masks everything, as after power-on.
    pub fn reset(&mut self) {
        self.set_control(0);
        self.entries.fill(POWER_ON);
    }

    fn write_word(&mut self, at: u64, value: u32) {
        let index = usize::try_from(at / ENTRY_BYTES).unwrap_or(usize::MAX);
        let Some(entry) = self.entries.get_mut(index) else {
            return;
        };
        let address = &mut entry.message.address;
        match at % ENTRY_BYTES {
            0 => *address = *address & !0xffff_ffff | u64::from(value & !0b11),
            4 => *address = *address & 0xffff_ffff | u64::from(value) << 32,
            8 => entry.message.data = value,
            _ => entry.control = value & VECTOR_MASKED,
        }
    }

    /// Connects or disconnects a vector as the masks say, and sends it if it is pending.
    fn update(&mut self, vector: u16) {
        let index = usize::from(vector);
        let (Some(entry), Some(signal)) = (self.entries.get_mut(index), self.events.get(index))
        else {
            return;
        };
        let open = self.enabled && !self.masked && entry.control & VECTOR_MASKED == 0;
        let wanted = open.then_some(entry.message);
        if wanted == entry.routed {
            return;
        }
        let result = match wanted {
            Some(message) => self.binding.route(vector, message),
            None => self.binding.unroute(vector),
        };
        if result.is_err() {
            // The guest loses interrupts of this vector, which the binding counts; it goes on with its others.
            entry.routed = None;
            return;
        }
        entry.routed = wanted;
        if wanted.is_some() && entry.pending {
            entry.pending = false;
            event::signal(signal);
        }
    }
}

/// The offsets from `offset` on, which stay at the last one instead of overflowing.
fn from(offset: u64) -> impl Iterator<Item = u64> {
    (0..).map(move |index| offset.saturating_add(index))
}

fn image_of(entry: &Entry) -> [u8; 16] {
    let high = u128::from(entry.control) << 96 | u128::from(entry.message.data) << 64;
    (high | u128::from(entry.message.address)).to_le_bytes()
}

#[cfg(test)]
mod tests;
