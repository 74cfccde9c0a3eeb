//! MSI-X: vector table, pending bits, masks.
//!
//! A vector is routed (its irqfd is connected) exactly while MSI-X is enabled and neither the
//! function nor the vector is masked. A vector raised while it is not routed becomes pending, and
//! is sent when it is routed again. With MSI-X disabled nothing is raised: there is no INTx, and
//! drivers poll.

use std::sync::Arc;

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
    failures: u64,
}

impl Msix {
    /// A table of `vectors` entries, at most 2048, all masked.
    ///
    /// # Errors
    /// The eventfd of a vector can not be made.
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
            failures: 0,
        })
    }

    /// Number of vectors.
    pub fn vectors(&self) -> u16 {
        u16::try_from(self.entries.len()).unwrap_or(u16::MAX)
    }

    /// Vectors that the host refused to connect or disconnect, over all time.
    pub fn route_failures(&self) -> u64 {
        self.failures
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
        let (Some(entry), Some(event)) = (self.entries.get_mut(index), self.events.get(index))
        else {
            return;
        };
        if !self.enabled {
            return;
        }
        if entry.routed.is_none() {
            entry.pending = true;
        } else if event.write(1).is_err() {
            // The counter is at its end: the interrupt is long since signalled.
            self.failures += 1;
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
        for (entry, event) in self.entries.iter_mut().zip(&self.events) {
            let due = entry.pending && entry.routed.is_some();
            if due && event.write(1).is_err() {
                self.failures += 1;
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
        let (Some(entry), Some(event)) = (self.entries.get_mut(index), self.events.get(index))
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
            // The guest loses interrupts of this vector; it goes on with its others.
            self.failures += 1;
            entry.routed = None;
            return;
        }
        entry.routed = wanted;
        if wanted.is_some() && entry.pending {
            entry.pending = false;
            if event.write(1).is_err() {
                self.failures += 1;
            }
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
mod tests {
    use super::*;
    use crate::pci::msi::testing::RecordingMsi;
    use proptest::prelude::*;

    fn unmask(msix: &mut Msix, vector: u64) {
        msix.write_table(vector * 16, &0xfee0_1000u64.to_le_bytes());
        msix.write_table(vector * 16 + 8, &0x41u32.to_le_bytes());
        msix.write_table(vector * 16 + 12, &0u32.to_le_bytes());
    }

    fn mask(msix: &mut Msix, vector: u64) {
        msix.write_table(vector * 16 + 12, &1u32.to_le_bytes());
    }

    #[test]
    fn a_vector_raised_while_masked_is_sent_once_when_unmasked() {
        let binding = RecordingMsi::new();
        let mut msix = Msix::new(3, binding.clone()).unwrap();
        msix.set_control(CONTROL_ENABLE);
        msix.raise(1);
        msix.raise(1);
        let mut pending = [0];
        msix.read_pending(0, &mut pending);
        assert_eq!(pending, [0b10]);
        assert_eq!(binding.raised(1), 0);

        unmask(&mut msix, 1);
        assert_eq!(binding.raised(1), 1);
        msix.read_pending(0, &mut pending);
        assert_eq!(pending, [0]);
        let expected = MsiMessage {
            address: 0xfee0_1000,
            data: 0x41,
        };
        assert_eq!(binding.routed(1), Some(expected));

        mask(&mut msix, 1);
        assert_eq!(binding.routed(1), None);
    }

    #[test]
    fn the_function_mask_holds_back_all_vectors() {
        let binding = RecordingMsi::new();
        let mut msix = Msix::new(2, binding.clone()).unwrap();
        unmask(&mut msix, 0);
        unmask(&mut msix, 1);
        assert_eq!(binding.routed(0), None);
        msix.set_control(CONTROL_ENABLE | CONTROL_MASK);
        msix.raise(0);
        msix.raise(1);
        assert_eq!(binding.raised(0), 0);
        msix.set_control(CONTROL_ENABLE);
        assert_eq!((binding.raised(0), binding.raised(1)), (1, 1));
    }

    #[test]
    fn nothing_is_raised_or_pending_while_msix_is_off() {
        let binding = RecordingMsi::new();
        let mut msix = Msix::new(1, binding.clone()).unwrap();
        unmask(&mut msix, 0);
        msix.raise(0);
        msix.set_control(CONTROL_ENABLE);
        assert_eq!(binding.raised(0), 0);
    }

    #[test]
    fn a_reset_disconnects_everything() {
        let binding = RecordingMsi::new();
        let mut msix = Msix::new(1, binding.clone()).unwrap();
        msix.set_control(CONTROL_ENABLE);
        unmask(&mut msix, 0);
        assert!(binding.routed(0).is_some());
        msix.reset();
        assert!(binding.routed(0).is_none());
        let mut image = [0xaa; 16];
        msix.read_table(0, &mut image);
        assert_eq!(image, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    }

    #[test]
    fn a_refused_route_is_counted_and_tried_again() {
        let binding = RecordingMsi::new();
        binding.refuse(true);
        let mut msix = Msix::new(1, binding.clone()).unwrap();
        msix.set_control(CONTROL_ENABLE);
        unmask(&mut msix, 0);
        assert_eq!(msix.route_failures(), 1);
        msix.raise(0);
        binding.refuse(false);
        mask(&mut msix, 0);
        unmask(&mut msix, 0);
        assert_eq!(binding.raised(0), 1);
    }

    proptest! {
        #[test]
        fn accesses_of_any_width_and_place_are_harmless(
            accesses in prop::collection::vec((any::<bool>(), prop_oneof![0u64..200, any::<u64>()], 0usize..17), 0..60),
            controls in prop::collection::vec(any::<u16>(), 0..8),
        ) {
            let binding = RecordingMsi::new();
            let mut msix = Msix::new(9, binding).unwrap();
            let mut controls = controls.into_iter();
            for (write, offset, width) in accesses {
                let mut data = vec![0x5a; width];
                if write {
                    msix.write_table(offset, &data);
                    if let Some(control) = controls.next() {
                        msix.set_control(control);
                        msix.raise(control & 0xf);
                    }
                } else {
                    msix.read_table(offset, &mut data);
                    msix.read_pending(offset, &mut data);
                }
            }
            for entry in &msix.entries {
                let open = msix.enabled && !msix.masked && entry.control & VECTOR_MASKED == 0;
                prop_assert_eq!(entry.routed, open.then_some(entry.message));
                prop_assert!(!(entry.pending && entry.routed.is_some()));
                prop_assert_eq!(entry.message.address % 4, 0);
            }
        }
    }
}
