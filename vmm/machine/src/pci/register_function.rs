//! A function of the chipset that has registers only; a write of them changes other parts of the machine.

use vmm_devices::{ConfigEffect, DeviceState, Payload, Payloads, PciFunction, StateError};

use super::registers::Registers;

/// A part of the machine that the registers of a function configure.
pub(crate) trait ApplyRegisters: Send {
    /// State of the function: its configuration space.
    type State: DeviceState + From<Vec<u8>> + Into<Vec<u8>>;

    /// Configures the part as the registers say.
    fn apply(&self, registers: &Registers);
}

/// The function. Each change of its registers is applied at once.
pub(crate) struct RegisterFunction<F> {
    registers: Registers,
    target: F,
}

impl<F: ApplyRegisters> RegisterFunction<F> {
    /// A function after power-on. Nothing is applied yet: the target begins with the values of the registers at power-on.
    pub(super) fn new(registers: Registers, target: F) -> Self {
        Self { registers, target }
    }

    /// Goes on where the function was saved.
    pub(crate) fn load(&mut self, payloads: &mut Payloads) -> Result<(), StateError> {
        let state: F::State = payloads.take()?;
        if !self.registers.load(&state.into()) {
            return Err(F::State::wrong("configuration space has another length"));
        }
        self.target.apply(&self.registers);
        Ok(())
    }
}

impl<F: ApplyRegisters> PciFunction for RegisterFunction<F> {
    fn config_read(&mut self, offset: u16, data: &mut [u8]) {
        self.registers.read(offset, data);
    }

    fn config_write(&mut self, offset: u16, data: &[u8]) -> ConfigEffect {
        self.registers.write(offset, data);
        self.target.apply(&self.registers);
        ConfigEffect::default()
    }

    fn reset(&mut self) {
        self.registers.reset();
        self.target.apply(&self.registers);
    }

    fn save(&self) -> Vec<Payload> {
        vec![F::State::from(self.registers.save()).to_payload()]
    }
}
