//! General purpose events of ACPI (ACPI 6.3, 4.8.4.1): a block of status bits, then one of enable bits.

use crate::acpi::GPE0_BYTES;

/// Bytes of status, and of enable.
const HALF: u16 = GPE0_BYTES as u16 / 2;

/// The registers. All bits are there, whether or not something raises them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GeneralEvents {
    status: u64,
    enable: u64,
}

impl GeneralEvents {
    pub(super) fn new(status: u64, enable: u64) -> Self {
        Self { status, enable }
    }

    pub(super) fn status(&self) -> u64 {
        self.status
    }

    pub(super) fn enable(&self) -> u64 {
        self.enable
    }

    /// Event number `event` happened; there are 64.
    pub(super) fn raise(&mut self, event: u8) {
        self.status |= 1u64.checked_shl(event.into()).unwrap_or(0);
    }

    /// Whether the guest is to be interrupted.
    pub(super) fn is_pending(&self) -> bool {
        self.status & self.enable != 0
    }

    /// The byte at `offset` of the block.
    pub(super) fn read(&self, offset: u16) -> u8 {
        let (register, shift) = self.place(offset);
        let [low, ..] = (register >> shift).to_le_bytes();
        low
    }

    /// Writes the byte at `offset` of the block: a one in a status bit clears it.
    pub(super) fn write(&mut self, offset: u16, value: u8) {
        let (register, shift) = self.place(offset);
        let bits = u64::from(value) << shift;
        if offset < HALF {
            self.status = register & !bits;
        } else {
            self.enable = register & !(0xff << shift) | bits;
        }
    }

    /// The register that a byte is of, and where in it.
    fn place(&self, offset: u16) -> (u64, u32) {
        let register = if offset < HALF {
            self.status
        } else {
            self.enable
        };
        (register, u32::from(offset % HALF) * 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_interrupts_while_it_is_enabled_and_until_it_is_cleared() {
        let mut events = GeneralEvents::default();
        events.raise(13);
        assert!(!events.is_pending());
        assert_eq!((events.read(0), events.read(1)), (0, 1 << 5));
        events.write(HALF + 1, 0xff);
        assert!(events.is_pending());
        events.write(1, 1 << 4);
        assert!(events.is_pending(), "another one was cleared");
        events.write(1, 1 << 5);
        assert!(!events.is_pending());
        assert_eq!(events.read(HALF + 1), 0xff);
        events.write(HALF + 1, 0);
        assert_eq!(events, GeneralEvents::default());
    }

    #[test]
    fn there_are_64_events() {
        let mut events = GeneralEvents::default();
        events.raise(64);
        assert_eq!(events.status(), 0);
        events.raise(63);
        assert_eq!(events.read(HALF - 1), 0x80);
    }
}
