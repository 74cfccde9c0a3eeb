//! The panic device at an I/O port (QEMU's `pvpanic`, ACPI's QEMU0001).

use super::register::{Register, SUPPORTED};
use crate::bus::BusDevice;
use crate::notice::NoticeSink;

/// A panic device at one I/O port. It has no state to be saved but whether it told of a crash kernel.
pub struct PvpanicPort(Register);

impl PvpanicPort {
    /// A device whose `notices` go to the machine.
    #[must_use]
    pub fn new(notices: NoticeSink) -> Self {
        Self(Register::new(notices))
    }

    /// Back to power-on.
    pub fn reset(&mut self) {
        self.0.reset();
    }

    /// Whether it told of a crash kernel since power-on.
    #[must_use]
    pub fn crash_was_told(&self) -> bool {
        self.0.crash_was_told
    }

    /// As it was saved.
    pub fn set_crash_was_told(&mut self, was_told: bool) {
        self.0.crash_was_told = was_told;
    }
}

impl BusDevice for PvpanicPort {
    fn read(&mut self, offset: u64, data: &mut [u8]) {
        data.fill(0xff);
        if let (0, Some(first)) = (offset, data.first_mut()) {
            *first = SUPPORTED;
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        if let (0, [value]) = (offset, data) {
            self.0.write(*value);
        }
    }
}
