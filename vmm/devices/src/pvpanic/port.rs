//! The panic device at an I/O port (QEMU's `pvpanic`, ACPI's QEMU0001).

use super::register::{Register, SUPPORTED};
use crate::bus::BusDevice;
use crate::notice::NoticeSink;

/// A panic device at one I/O port. All its saved state is whether a crash kernel was reported.
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

    /// Whether the guest reported a crash kernel since the last reset.
    #[must_use]
    pub fn crash_was_reported(&self) -> bool {
        self.0.crash_was_reported
    }

    /// As it was saved.
    pub fn set_crash_was_reported(&mut self, was_reported: bool) {
        self.0.crash_was_reported = was_reported;
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
