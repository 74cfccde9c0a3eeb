//! Configuration space of the chipset's own functions: bytes, and which bits of them can be written.

use vmm_devices::{CONVENTIONAL_BYTES, ConfigEffect, ConfigImage, Payload, PciFunction};

/// Bytes of conventional PCI.
pub(super) const BYTES: usize = CONVENTIONAL_BYTES;

/// The registers of one function.
#[derive(Clone, Debug)]
pub(crate) struct Registers {
    bytes: [u8; BYTES],
    writable: [u8; BYTES],
    power_on: [u8; BYTES],
}

impl Registers {
    /// Registers that are `fields` at power-on, and zero elsewhere; none can be written.
    pub(super) fn new(fields: &[(usize, &[u8])]) -> Self {
        let mut bytes = [0; BYTES];
        for (at, field) in fields {
            put(&mut bytes, *at, field);
        }
        Self {
            bytes,
            writable: [0; BYTES],
            power_on: bytes,
        }
    }

    /// Lets the bits of `masks` be written.
    pub(super) fn writable(mut self, masks: &[(usize, &[u8])]) -> Self {
        for (at, mask) in masks {
            put(&mut self.writable, *at, mask);
        }
        self
    }

    /// Reads; ones beyond the end. There is no extended space, and guests that see that do not look for
    /// capabilities there.
    pub(super) fn read(&self, offset: u16, data: &mut [u8]) {
        let at = usize::from(offset);
        match self.bytes.get(at..at + data.len()) {
            Some(bytes) => data.copy_from_slice(bytes),
            None => data.fill(0xff),
        }
    }

    /// Writes what can be written.
    pub(super) fn write(&mut self, offset: u16, data: &[u8]) {
        for (at, value) in (usize::from(offset)..).zip(data) {
            if let (Some(byte), Some(mask)) = (self.bytes.get_mut(at), self.writable.get(at)) {
                *byte = *byte & !mask | value & mask;
            }
        }
    }

    /// Back to power-on.
    pub(super) fn reset(&mut self) {
        self.bytes = self.power_on;
    }

    /// `N` bytes from `at` on.
    pub(super) fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let field = self.bytes.get(at..at + N);
        field
            .and_then(|field| field.try_into().ok())
            .unwrap_or([0; N])
    }

    /// All bytes.
    pub(super) fn save(&self) -> Vec<u8> {
        self.bytes.to_vec()
    }

    /// Takes what [`Self::save`] gave. What cannot be written stays as it is; false when the length is
    /// another.
    pub(super) fn load(&mut self, saved: &[u8]) -> bool {
        if saved.len() != BYTES {
            return false;
        }
        self.write(0, saved);
        true
    }
}

/// A function that nothing follows and nothing can be written to: there is no state to save.
impl PciFunction for Registers {
    fn config_read(&mut self, offset: u16, data: &mut [u8]) {
        self.read(offset, data);
    }

    fn config_write(&mut self, _: u16, _: &[u8]) -> ConfigEffect {
        ConfigEffect::default()
    }

    fn config_image(&self) -> Option<ConfigImage<'_>> {
        Some(ConfigImage {
            bytes: &self.bytes,
            beyond: 0xff,
        })
    }

    fn reset(&mut self) {}

    fn save(&self) -> Vec<Payload> {
        Vec::new()
    }
}

fn put(bytes: &mut [u8; BYTES], at: usize, field: &[u8]) {
    for (to, from) in bytes.iter_mut().skip(at).zip(field) {
        *to = *from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_written_is_and_a_reset_brings_it_back() {
        let mut registers = Registers::new(&[(2, &[0x12, 0x34])]).writable(&[(3, &[0x0f])]);
        registers.write(2, &[0xff, 0xff]);
        assert_eq!(registers.array(2), [0x12, 0x3f]);
        let mut other = Registers::new(&[(2, &[0x12, 0x34])]).writable(&[(3, &[0x0f])]);
        assert!(other.load(&registers.save()));
        assert_eq!(other.array(2), [0x12, 0x3f]);
        assert!(!other.load(&[0; 255]));
        registers.reset();
        assert_eq!(registers.array(2), [0x12, 0x34]);
        let mut data = [0; 4];
        registers.read(254, &mut data);
        assert_eq!(data, [0xff; 4]);
        registers.write(254, &[0; 4]);
    }
}
