//! The panic device as a PCI function (QEMU's `pvpanic-pci`).

use super::register::{Register, SUPPORTED};
use crate::notice::NoticeSink;
use crate::pci::config::{ConfigSpace, LayoutError, PciIdentity};
use crate::pci::function::{BarKind, BarWindow, ConfigEffect, ConfigImage, PciFunction};
use crate::state::{DeviceState, Payload, Payloads, StateError};

use super::state::PvpanicState;

const IDENTITY: PciIdentity = PciIdentity {
    vendor: 0x1b36,
    device: 0x0011,
    revision: 1,
    // Base system peripheral, other.
    class: 0x08_8000,
    subsystem_vendor: 0x1af4,
    subsystem: 0x1100,
};
/// The register is its first byte.
const BAR_BYTES: u64 = 4096;

/// A panic device could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PvpanicError {
    /// A mistake of this module.
    #[error("configuration space cannot be laid out")]
    Layout(#[from] LayoutError),
    /// The payload to restore it from is of another device or version.
    #[error("it cannot be made of its state")]
    State(#[from] StateError),
}

/// A panic device with its register in a BAR.
pub struct PvpanicPci {
    space: ConfigSpace,
    register: Register,
}

impl PvpanicPci {
    /// A device whose `notices` go to the machine.
    ///
    /// # Errors
    /// None that a caller could cause.
    pub fn new(notices: NoticeSink) -> Result<Self, PvpanicError> {
        let mut space = ConfigSpace::new(IDENTITY);
        space.add_bar(0, BAR_BYTES, BarKind::Memory32)?;
        Ok(Self {
            space,
            register: Register::new(notices),
        })
    }

    /// A device as it was saved. Takes its payload.
    ///
    /// # Errors
    /// The state is that of another function.
    pub fn restored(notices: NoticeSink, payloads: &mut Payloads) -> Result<Self, PvpanicError> {
        let mut function = Self::new(notices)?;
        let state: PvpanicState = payloads.take()?;
        if !function.space.load(&state.config_space) {
            let wrong = PvpanicState::wrong("configuration space is of another function");
            return Err(wrong.into());
        }
        function.register.crash_was_reported = state.crash_was_reported;
        Ok(function)
    }
}

impl PciFunction for PvpanicPci {
    fn config_read(&mut self, offset: u16, data: &mut [u8]) {
        self.space.read(offset, data);
    }

    fn config_write(&mut self, offset: u16, data: &[u8]) -> ConfigEffect {
        let before = self.space.bars();
        self.space.write(offset, data);
        ConfigEffect {
            bars_changed: self.space.bars() != before,
            ..ConfigEffect::default()
        }
    }

    fn config_image(&self) -> Option<ConfigImage<'_>> {
        Some(self.space.image())
    }

    fn bars(&self) -> Vec<BarWindow> {
        self.space.bars()
    }

    fn set_bar(&mut self, index: usize, base: u64) {
        self.space.set_bar(index, base);
    }

    fn bar_read(&mut self, _: usize, offset: u64, data: &mut [u8]) {
        data.fill(0);
        if let (0, Some(first)) = (offset, data.first_mut()) {
            *first = SUPPORTED;
        }
    }

    fn bar_write(&mut self, _: usize, offset: u64, data: &[u8]) {
        if let (0, [value]) = (offset, data) {
            self.register.write(*value);
        }
    }

    fn reset(&mut self) {
        self.space.reset();
        self.register.reset();
    }

    fn save(&self) -> Vec<Payload> {
        let state = PvpanicState {
            config_space: self.space.bytes().to_vec(),
            crash_was_reported: self.register.crash_was_reported,
        };
        vec![state.to_payload()]
    }
}
