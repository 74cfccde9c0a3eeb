//! Saves a root port and restores it.

use super::RootPort;
use super::registers::express;
use super::state::RootPortState;
use crate::state::{DeviceState, StateError};

impl RootPort {
    pub(super) fn state(&self) -> RootPortState {
        RootPortState {
            config_space: self.space.bytes().to_vec(),
            occupied: self.is_occupied,
        }
    }

    /// Brings a port after power-on to `state`.
    pub(super) fn load(&mut self, state: &RootPortState) -> Result<(), StateError> {
        if state.occupied != self.is_occupied {
            return Err(RootPortState::wrong(
                "its slot and that of the configuration differ in whether they hold a device",
            ));
        }
        // Registers that only the port itself writes come first: the rest must equal this port's.
        let own = [
            (self.express_offset(express::SLOT_STATUS), 2),
            (self.express_offset(express::LINK_STATUS), 2),
            (self.interrupt.pending_offset(), 4),
        ];
        for (at, bytes) in own {
            let start = usize::from(at);
            if let Some(register) = state.config_space.get(start..start + bytes) {
                self.space.poke(at, register);
            }
        }
        if !self.space.load(&state.config_space) {
            return Err(RootPortState::wrong(
                "configuration space is of another function",
            ));
        }
        let present = if self.is_occupied {
            express::PRESENT
        } else {
            0
        };
        let events = self.express_u16(express::SLOT_STATUS) & express::SLOT_EVENTS;
        self.set_express(express::SLOT_STATUS, events | present);
        self.show_link();
        self.interrupt.keep_pending(&mut self.space);
        self.was_open = self.is_open();
        self.interrupt.follow(&mut self.space);
        Ok(())
    }
}
