//! Two relics that firmware writes to: the ports of advanced power management, and the fast gate of
//! address line 20.

use vmm_devices::BusDevice;

use crate::events::GuestEvents;
use crate::guest_event::{GuestEvent, ResetSource};

/// APM control, then status (Intel I/O Controller Hub 9 Family, 13.7.2).
pub(crate) const APM_PORT: u16 = 0xb2;
/// Number of its ports.
pub(crate) const APM_PORTS: u16 = 2;
/// The port of the gate.
pub(crate) const A20_PORT: u16 = 0x92;

/// Two registers. There is no system management mode, so a command makes no interrupt.
#[derive(Default)]
pub(crate) struct Apm {
    registers: [u8; 2],
}

impl Apm {
    /// Control and status.
    pub(crate) fn registers(&self) -> [u8; 2] {
        self.registers
    }

    /// Sets both.
    pub(crate) fn set(&mut self, registers: [u8; 2]) {
        self.registers = registers;
    }
}

impl BusDevice for Apm {
    fn read(&mut self, offset: u64, data: &mut [u8]) {
        data.fill(0xff);
        for (at, byte) in (offset..).zip(data) {
            let register = usize::try_from(at)
                .ok()
                .and_then(|at| self.registers.get(at));
            if let Some(register) = register {
                *byte = *register;
            }
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        for (at, byte) in (offset..).zip(data) {
            let at = usize::try_from(at).ok();
            if let Some(register) = at.and_then(|at| self.registers.get_mut(at)) {
                *register = *byte;
            }
        }
    }
}

/// The line itself is always on.
const A20_ON: u8 = 1 << 1;
const FAST_RESET: u8 = 1;

/// The gate, with its fast reset.
pub(crate) struct FastA20 {
    value: u8,
    events: GuestEvents,
}

impl FastA20 {
    pub(crate) fn new(events: GuestEvents) -> Self {
        Self {
            value: A20_ON,
            events,
        }
    }

    /// What the port reads as.
    pub(crate) fn value(&self) -> u8 {
        self.value
    }

    /// Sets what it reads as.
    pub(crate) fn set(&mut self, value: u8) {
        self.value = value & !FAST_RESET;
    }

    /// Back to power-on.
    pub(crate) fn reset(&mut self) {
        self.value = A20_ON;
    }
}

impl BusDevice for FastA20 {
    fn read(&mut self, _: u64, data: &mut [u8]) {
        data.fill(0xff);
        if let [value] = data {
            *value = self.value;
        }
    }

    fn write(&mut self, _: u64, data: &[u8]) {
        let [value] = *data else {
            return;
        };
        if value & FAST_RESET != 0 {
            // It is the keyboard controller's reset by a faster way.
            let reset = GuestEvent::Reset(ResetSource::KeyboardController);
            self.events.post(reset);
        }
        self.set(value);
    }
}
