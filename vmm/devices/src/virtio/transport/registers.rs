//! The common configuration structure (VIRTIO 1.2, 4.1.4.3) as plain state.
//!
//! Holds what the driver wrote and answers reads; what follows from a write (reset, activation) is
//! the function's to do and comes back as an [`Effect`].

use super::super::interrupt::Interrupts;

/// Device status bits (VIRTIO 1.2, 2.1).
pub(super) const ACKNOWLEDGE: u8 = 1;
pub(super) const DRIVER: u8 = 2;
pub(super) const DRIVER_OK: u8 = 4;
pub(super) const FEATURES_OK: u8 = 8;
pub(super) const NEEDS_RESET: u8 = 64;
pub(super) const FAILED: u8 = 128;

/// Offset of `queue_msix_vector`.
pub(super) const QUEUE_VECTOR: u64 = 26;

/// Length of the structure.
const IMAGE_BYTES: usize = 56;

/// Queue registers as the driver programmed them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueRegisters {
    pub(super) max_size: u16,
    pub(super) size: u16,
    pub(super) enabled: bool,
    pub(super) descriptors: u64,
    pub(super) avail: u64,
    pub(super) used: u64,
}

impl QueueRegisters {
    fn new(max_size: u16) -> Self {
        Self {
            max_size,
            size: max_size,
            enabled: false,
            descriptors: 0,
            avail: 0,
            used: 0,
        }
    }
}

/// What the function has to do after a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    None,
    /// The driver wrote 0 to the status.
    Reset,
    /// The driver set FEATURES_OK: decide, and set it in the status or not.
    CheckFeatures,
    /// The driver set DRIVER_OK.
    Activate,
    /// The driver enables this queue: check its addresses, and set `enabled` or not.
    Enable(usize),
}

/// The registers of `virtio_pci_common_cfg` that the driver has written.
#[derive(Clone, Debug)]
pub(super) struct Registers {
    pub(super) status: u8,
    pub(super) driver_features: u64,
    device_feature_select: u32,
    driver_feature_select: u32,
    queue_select: u16,
    pub(super) queues: Vec<QueueRegisters>,
}

impl Registers {
    pub(super) fn new(queue_sizes: &[u16]) -> Self {
        Self {
            status: 0,
            driver_features: 0,
            device_feature_select: 0,
            driver_feature_select: 0,
            queue_select: 0,
            queues: queue_sizes
                .iter()
                .copied()
                .map(QueueRegisters::new)
                .collect(),
        }
    }

    /// A device reset.
    pub(super) fn reset(&mut self) {
        let sizes: Vec<u16> = self.queues.iter().map(|queue| queue.max_size).collect();
        *self = Self::new(&sizes);
    }

    /// What the driver selected: half of the device's features, half of its own, queue.
    pub(super) fn selects(&self) -> (u32, u32, u16) {
        let features = (self.device_feature_select, self.driver_feature_select);
        (features.0, features.1, self.queue_select)
    }

    /// Undoes [`selects`](Self::selects).
    pub(super) fn set_selects(&mut self, device_features: u32, driver_features: u32, queue: u16) {
        self.device_feature_select = device_features;
        self.driver_feature_select = driver_features;
        self.queue_select = queue;
    }

    /// Reads any part of the structure; beyond it is zero.
    pub(super) fn read(&self, offset: u64, data: &mut [u8], view: &View<'_>) {
        let image = self.image(view);
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        for (index, byte) in data.iter_mut().enumerate() {
            *byte = start
                .checked_add(index)
                .and_then(|at| image.get(at))
                .copied()
                .unwrap_or(0);
        }
    }

    /// Writes a field. Fields are written whole (4.1.3.1), 64-bit ones also by halves; other
    /// accesses are dropped.
    pub(super) fn write(&mut self, offset: u64, data: &[u8], interrupts: &Interrupts) -> Effect {
        match data {
            [byte] => self.write8(offset, *byte),
            [a, b] => self.write16(offset, u16::from_le_bytes([*a, *b]), interrupts),
            [a, b, c, d] => self.write32(offset, u32::from_le_bytes([*a, *b, *c, *d])),
            [a, b, c, d, e, f, g, h] if offset.is_multiple_of(8) => {
                self.write32(offset, u32::from_le_bytes([*a, *b, *c, *d]));
                self.write32(offset + 4, u32::from_le_bytes([*e, *f, *g, *h]))
            }
            _ => Effect::None,
        }
    }

    fn write8(&mut self, offset: u64, value: u8) -> Effect {
        if offset == 20 {
            self.write_status(value)
        } else {
            Effect::None
        }
    }

    fn write16(&mut self, offset: u64, value: u16, interrupts: &Interrupts) -> Effect {
        let index = usize::from(self.queue_select);
        match offset {
            16 => interrupts.set_config_vector(value),
            22 => self.queue_select = value,
            24 => {
                if let Some(queue) = self.programmable()
                    && value.is_power_of_two()
                    && value <= queue.max_size
                {
                    queue.size = value;
                }
            }
            QUEUE_VECTOR => interrupts.set_queue_vector(index, value),
            // A driver never writes 0 here (4.1.4.3.2).
            28 if value == 1 && self.programmable().is_some() => return Effect::Enable(index),
            _ => {}
        }
        Effect::None
    }

    fn write32(&mut self, offset: u64, value: u32) -> Effect {
        match offset {
            0 => self.device_feature_select = value,
            8 => self.driver_feature_select = value,
            12 if self.status & FEATURES_OK == 0 => match self.driver_feature_select {
                0 => set_low(&mut self.driver_features, value),
                1 => set_high(&mut self.driver_features, value),
                _ => {}
            },
            32..56 => {
                if let Some(queue) = self.programmable() {
                    match offset {
                        32 => set_low(&mut queue.descriptors, value),
                        36 => set_high(&mut queue.descriptors, value),
                        40 => set_low(&mut queue.avail, value),
                        44 => set_high(&mut queue.avail, value),
                        48 => set_low(&mut queue.used, value),
                        52 => set_high(&mut queue.used, value),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        Effect::None
    }

    /// Status only grows, but for a reset. FEATURES_OK and DRIVER_OK are set by whoever carries out
    /// the effect.
    fn write_status(&mut self, value: u8) -> Effect {
        if value == 0 {
            return Effect::Reset;
        }
        let set = value & !self.status;
        self.status |= set & (ACKNOWLEDGE | DRIVER | FAILED);
        if set & FEATURES_OK != 0 {
            Effect::CheckFeatures
        } else if set & DRIVER_OK != 0 && self.status & (FEATURES_OK | NEEDS_RESET) == FEATURES_OK {
            Effect::Activate
        } else {
            Effect::None
        }
    }

    /// The selected queue, if there is one and it may still be programmed.
    fn programmable(&mut self) -> Option<&mut QueueRegisters> {
        let running = self.status & DRIVER_OK != 0;
        self.queues
            .get_mut(usize::from(self.queue_select))
            .filter(|queue| !queue.enabled && !running)
    }

    fn image(&self, view: &View<'_>) -> [u8; IMAGE_BYTES] {
        let index = usize::from(self.queue_select);
        let queue = self.queues.get(index);
        let count = u16::try_from(self.queues.len()).unwrap_or(u16::MAX);
        let vector = view.interrupts.queue_vector(index);
        let mut image = [0; IMAGE_BYTES];
        let mut rest = image.as_mut_slice();
        let mut put = |bytes: &[u8]| {
            if let Some((field, later)) =
                std::mem::take(&mut rest).split_at_mut_checked(bytes.len())
            {
                field.copy_from_slice(bytes);
                rest = later;
            }
        };
        put(&self.device_feature_select.to_le_bytes());
        put(&half(view.device_features, self.device_feature_select).to_le_bytes());
        put(&self.driver_feature_select.to_le_bytes());
        put(&half(self.driver_features, self.driver_feature_select).to_le_bytes());
        put(&view.interrupts.config_vector().to_le_bytes());
        put(&count.to_le_bytes());
        put(&[self.status, view.config_generation]);
        put(&self.queue_select.to_le_bytes());
        // A size of 0 says that there is no such queue.
        put(&queue.map_or(0, |queue| queue.size).to_le_bytes());
        put(&vector.to_le_bytes());
        put(&u16::from(queue.is_some_and(|queue| queue.enabled)).to_le_bytes());
        // queue_notify_off: every queue has a kick register of its own.
        put(&queue.map_or(0, |_| self.queue_select).to_le_bytes());
        put(&queue.map_or(0, |queue| queue.descriptors).to_le_bytes());
        put(&queue.map_or(0, |queue| queue.avail).to_le_bytes());
        put(&queue.map_or(0, |queue| queue.used).to_le_bytes());
        image
    }
}

/// What the registers show but do not hold.
pub(super) struct View<'a> {
    pub(super) device_features: u64,
    pub(super) config_generation: u8,
    pub(super) interrupts: &'a Interrupts,
}

fn half(features: u64, select: u32) -> u32 {
    let [a, b, c, d, e, f, g, h] = features.to_le_bytes();
    match select {
        0 => u32::from_le_bytes([a, b, c, d]),
        1 => u32::from_le_bytes([e, f, g, h]),
        _ => 0,
    }
}

fn set_low(register: &mut u64, value: u32) {
    *register = *register & !0xffff_ffff | u64::from(value);
}

fn set_high(register: &mut u64, value: u32) {
    *register = *register & 0xffff_ffff | u64::from(value) << 32;
}
