//! A PCI Express root port: the bridge to a bus with one slot.
//!
//! Every slot can be hot-plugged natively (PCI Express Base 4.0, 6.7.3): the port tells presence and
//! the link's state, and has a power controller, by which guests let go of a device. While the slot
//! is without power, or its bus is held in reset, nothing answers behind the port; afterwards the
//! device is as after power-on.
//!
//! I/O windows and INTx are not offered: no device behind has I/O BARs, and all have MSI-X.

mod layout;
mod message;
mod registers;
mod saving;
mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use registers::{
    BRIDGE_CONTROL, BUS_NUMBERS, CAPABILITY_SUBSYSTEM, COMMAND, COMMAND_FORWARD, COMMAND_MEMORY,
    MEMORY_WINDOW, PREFETCHABLE_UPPER, PREFETCHABLE_WINDOW, SECONDARY_RESET, WINDOW_LOW_BITS,
    express,
};

use self::layout::{add_express, lay_out_header};
use self::message::MessageInterrupt;
use super::config::{ConfigSpace, LayoutError, PciIdentity};
use super::function::{
    BridgeRouting, BridgeWindow, BusNumbers, ConfigEffect, ConfigImage, PciBridge, PciFunction,
};
use super::msi::{MsiBinding, MsiError};
use crate::state::{DeviceState, Payload, Payloads, StateError};

pub use self::state::RootPortState;

/// The generic root port that guests and firmware know from QEMU (`docs/specs/pci-ids.rst` there).
const VENDOR_RED_HAT: u16 = 0x1b36;
const DEVICE_ROOT_PORT: u16 = 0x000c;
const CLASS_PCI_BRIDGE: u32 = 0x06_0400;
/// A window's granularity.
const WINDOW_UNIT: u64 = 1 << 20;

/// A root port could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RootPortError {
    /// The port's MSI could not be set up.
    #[error("the interrupt cannot be made")]
    Interrupt(#[from] MsiError),
    /// A mistake of this module.
    #[error("configuration space cannot be laid out")]
    Layout(#[from] LayoutError),
    /// The payload to restore it from is of another port or version.
    #[error("it cannot be made of its state")]
    State(#[from] StateError),
}

/// A root port with its slot.
pub struct RootPort {
    space: ConfigSpace,
    express: u16,
    interrupt: MessageInterrupt,
    is_occupied: bool,
    was_open: bool,
    reset_seen: bool,
}

impl RootPort {
    /// A port whose slot holds a device, or not. `port` is its number in the link's capabilities.
    ///
    /// # Errors
    /// The host has no descriptor left for the interrupt.
    pub fn new(
        port: u8,
        is_occupied: bool,
        binding: Arc<dyn MsiBinding>,
    ) -> Result<Self, RootPortError> {
        let mut space = ConfigSpace::new(PciIdentity {
            vendor: VENDOR_RED_HAT,
            device: DEVICE_ROOT_PORT,
            revision: 0,
            class: CLASS_PCI_BRIDGE,
            // Bridges have theirs in a capability.
            subsystem_vendor: 0,
            subsystem: 0,
        });
        lay_out_header(&mut space);
        let express = add_express(&mut space, port)?;
        let mut interrupt = MessageInterrupt::new(binding)?;
        interrupt.add_to(&mut space)?;
        let [vendor, high, device, top] =
            (u32::from(DEVICE_ROOT_PORT) << 16 | u32::from(VENDOR_RED_HAT)).to_le_bytes();
        let subsystem = [0, 0, vendor, high, device, top];
        space.add_capability(CAPABILITY_SUBSYSTEM, &subsystem, &[])?;
        let mut port = Self {
            space,
            express,
            interrupt,
            is_occupied,
            was_open: is_occupied,
            reset_seen: false,
        };
        port.power_on();
        Ok(port)
    }

    /// A port as it was saved. Takes its payload.
    ///
    /// # Errors
    /// As [`new`](Self::new); or the state is that of another port.
    pub fn restored(
        port: u8,
        is_occupied: bool,
        binding: Arc<dyn MsiBinding>,
        payloads: &mut Payloads,
    ) -> Result<Self, RootPortError> {
        let mut function = Self::new(port, is_occupied, binding)?;
        function.load(&payloads.take()?)?;
        Ok(function)
    }

    fn express_offset(&self, register: usize) -> u16 {
        // Registers lie within the capability, which lies within 256 bytes.
        self.express
            .saturating_add(u16::try_from(register).unwrap_or(0))
    }

    fn express_u16(&self, register: usize) -> u16 {
        self.space.u16_at(self.express_offset(register))
    }

    fn set_express(&mut self, register: usize, value: u16) {
        self.space
            .poke(self.express_offset(register), &value.to_le_bytes());
    }

    /// The slot's registers as they are when power comes.
    fn power_on(&mut self) {
        let (control, status) = if self.is_occupied {
            (express::INDICATORS_OCCUPIED, express::PRESENT)
        } else {
            (express::INDICATORS_EMPTY | express::POWER_OFF, 0)
        };
        self.set_express(express::SLOT_CONTROL, control);
        self.set_express(express::SLOT_STATUS, status);
        self.was_open = self.is_occupied;
        self.show_link();
    }

    fn show_link(&mut self) {
        let active = if self.is_occupied && self.has_power() {
            express::LINK_ACTIVE
        } else {
            0
        };
        self.set_express(express::LINK_STATUS, express::LINK_SPEED_AND_WIDTH | active);
    }

    fn has_power(&self) -> bool {
        self.express_u16(express::SLOT_CONTROL) & express::POWER_OFF == 0
    }

    fn is_open(&self) -> bool {
        let held = self.space.u16_at(BRIDGE_CONTROL) & SECONDARY_RESET != 0;
        self.is_occupied && self.has_power() && !held
    }

    /// Whether an event is reported and may interrupt.
    fn wants_interrupt(&self) -> bool {
        let control = self.express_u16(express::SLOT_CONTROL);
        let status = self.express_u16(express::SLOT_STATUS);
        let link =
            status & express::LINK_CHANGED != 0 && control & express::LINK_CHANGE_ENABLED != 0;
        control & express::HOT_PLUG_INTERRUPT != 0
            && (link || status & control & express::SAME_BIT_EVENTS != 0)
    }

    /// Registers that follow from those that were just written.
    fn settle(&mut self, offset: u16, data: &[u8], wanted_interrupt: bool) {
        self.clear_events(offset, data);
        let linked = self.express_u16(express::LINK_STATUS) & express::LINK_ACTIVE;
        self.show_link();
        if self.express_u16(express::LINK_STATUS) & express::LINK_ACTIVE != linked {
            let status = self.express_u16(express::SLOT_STATUS) | express::LINK_CHANGED;
            self.set_express(express::SLOT_STATUS, status);
        }
        let open = self.is_open();
        self.reset_seen |= self.was_open && !open;
        self.was_open = open;
        self.interrupt.follow(&mut self.space);
        // MSI tells of the moment when an interrupt becomes wanted (6.7.3.4).
        if self.wants_interrupt() && !wanted_interrupt {
            self.interrupt.raise(&mut self.space);
        }
    }

    /// Slot status is cleared by ones, at any width of access.
    fn clear_events(&mut self, offset: u16, data: &[u8]) {
        let [mut low, mut high] = [0; 2];
        let at = self.express_offset(express::SLOT_STATUS);
        for (place, byte) in (offset..=u16::MAX).zip(data) {
            if place == at {
                low = *byte;
            } else if place == at + 1 {
                high = *byte;
            }
        }
        let cleared = u16::from_le_bytes([low, high]) & express::SLOT_EVENTS;
        let status = self.express_u16(express::SLOT_STATUS) & !cleared;
        self.set_express(express::SLOT_STATUS, status);
    }

    fn memory_window(&self) -> BridgeWindow {
        let [base, limit] = self.window_registers(MEMORY_WINDOW);
        BridgeWindow {
            base: u64::from(base & !WINDOW_LOW_BITS) << 16,
            last: u64::from(limit & !WINDOW_LOW_BITS) << 16 | (WINDOW_UNIT - 1),
        }
    }

    fn prefetchable_window(&self) -> BridgeWindow {
        let [base, limit] = self.window_registers(PREFETCHABLE_WINDOW);
        let upper = |at| u64::from(self.space.u32_at(at)) << 32;
        BridgeWindow {
            base: upper(PREFETCHABLE_UPPER) | u64::from(base & !WINDOW_LOW_BITS) << 16,
            last: upper(PREFETCHABLE_UPPER + 4)
                | u64::from(limit & !WINDOW_LOW_BITS) << 16
                | (WINDOW_UNIT - 1),
        }
    }

    fn window_registers(&self, at: u16) -> [u16; 2] {
        [self.space.u16_at(at), self.space.u16_at(at + 2)]
    }
}

impl PciBridge for RootPort {
    fn routing(&self) -> BridgeRouting {
        let mut buses = [0; 3];
        self.space.read(BUS_NUMBERS, &mut buses);
        let [primary, secondary, subordinate] = buses;
        let decodes = self.space.u16_at(COMMAND) & COMMAND_MEMORY != 0;
        let when_decoded = |window| {
            if decodes {
                window
            } else {
                BridgeWindow::CLOSED
            }
        };
        BridgeRouting {
            buses: BusNumbers {
                primary,
                secondary,
                subordinate,
            },
            memory: when_decoded(self.memory_window()),
            prefetchable: when_decoded(self.prefetchable_window()),
            is_open: self.is_open(),
        }
    }

    fn set_routing(&mut self, buses: BusNumbers, memory: BridgeWindow, prefetchable: BridgeWindow) {
        let numbers = [buses.primary, buses.secondary, buses.subordinate];
        self.space.write(BUS_NUMBERS, &numbers);
        let bits = |address: u64| {
            let [_, _, low, high, ..] = address.to_le_bytes();
            [low, high]
        };
        for (at, window) in [(MEMORY_WINDOW, memory), (PREFETCHABLE_WINDOW, prefetchable)] {
            // A closed window has its limit below its base (3.2.5.8).
            let (base, last) = if window.last < window.base {
                (WINDOW_UNIT, 0)
            } else {
                (window.base, window.last)
            };
            self.space.write(at, &bits(base));
            self.space.write(at + 2, &bits(last));
            if at == PREFETCHABLE_WINDOW {
                let upper = (last & !0xffff_ffff) | base >> 32;
                self.space.write(PREFETCHABLE_UPPER, &upper.to_le_bytes());
            }
        }
        self.space.write(COMMAND, &COMMAND_FORWARD.to_le_bytes());
    }

    fn take_secondary_reset(&mut self) -> bool {
        std::mem::take(&mut self.reset_seen)
    }
}

impl PciFunction for RootPort {
    fn config_read(&mut self, offset: u16, data: &mut [u8]) {
        self.space.read(offset, data);
    }

    fn config_write(&mut self, offset: u16, data: &[u8]) -> ConfigEffect {
        let before = self.routing();
        let wanted_interrupt = self.wants_interrupt();
        self.space.write(offset, data);
        self.settle(offset, data, wanted_interrupt);
        ConfigEffect {
            bars_changed: self.routing() != before,
            ..ConfigEffect::default()
        }
    }

    fn config_image(&self) -> Option<ConfigImage<'_>> {
        Some(self.space.image())
    }

    fn reset(&mut self) {
        self.space.reset();
        self.reset_seen = false;
        self.power_on();
        self.interrupt.follow(&mut self.space);
    }

    fn save(&self) -> Vec<Payload> {
        vec![self.state().to_payload()]
    }

    fn bridge(&mut self) -> Option<&mut dyn PciBridge> {
        Some(self)
    }
}
