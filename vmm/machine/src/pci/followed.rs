//! A function of the chipset that is registers only, and what is elsewhere as they say.

use vmm_devices::{ConfigEffect, DeviceState, Payload, Payloads, PciFunction, StateError};

use super::registers::Registers;

/// What registers decide about.
pub(crate) trait Follow: Send {
    /// State of the function: its configuration space.
    type State: DeviceState + From<Vec<u8>> + Into<Vec<u8>>;

    /// Makes everything be as the registers say.
    fn follow(&self, registers: &Registers);
}

/// The function. Whatever changes its registers is followed at once.
pub(crate) struct Followed<F> {
    registers: Registers,
    follower: F,
}

impl<F: Follow> Followed<F> {
    /// A function after power-on. Nothing is followed yet: whatever follows begins as registers do.
    pub(super) fn new(registers: Registers, follower: F) -> Self {
        Self {
            registers,
            follower,
        }
    }

    /// Goes on where the function was saved.
    pub(crate) fn load(&mut self, payloads: &mut Payloads) -> Result<(), StateError> {
        let state: F::State = payloads.take()?;
        if !self.registers.load(&state.into()) {
            return Err(F::State::wrong("configuration space has another length"));
        }
        self.follower.follow(&self.registers);
        Ok(())
    }
}

impl<F: Follow> PciFunction for Followed<F> {
    fn config_read(&mut self, offset: u16, data: &mut [u8]) {
        self.registers.read(offset, data);
    }

    fn config_write(&mut self, offset: u16, data: &[u8]) -> ConfigEffect {
        self.registers.write(offset, data);
        self.follower.follow(&self.registers);
        ConfigEffect::default()
    }

    fn reset(&mut self) {
        self.registers.reset();
        self.follower.follow(&self.registers);
    }

    fn save(&self) -> Vec<Payload> {
        vec![F::State::from(self.registers.save()).to_payload()]
    }
}
