//! The q35 host bridge (Intel 3 Series Express Chipset Family, 82G33 MCH), as far as software looks.

use std::sync::Arc;

use vmm_devices::{ConfigEffect, DeviceState, Payload, Payloads, PciFunction, StateError};
use vmm_memory::ECAM_BASE;

use super::registers::Registers;
use crate::chain::chain;
use crate::events::{GuestEvent, GuestEvents};
use crate::firmware::{Decode, PAM_REGISTERS, Shadow};

const VENDOR_INTEL: [u8; 2] = 0x8086u16.to_le_bytes();
const DEVICE_Q35_MCH: [u8; 2] = 0x29c0u16.to_le_bytes();
const CLASS_HOST_BRIDGE: [u8; 3] = [0, 0, 6];
/// By this SeaBIOS knows that it is on a virtual machine.
pub(super) const SUBSYSTEM_VIRTUAL: [u8; 4] = [0xf4, 0x1a, 0x00, 0x11];
pub(super) const SUBSYSTEM: usize = 0x2c;
/// PCIEXBAR: base of configuration space, 256 MiB, enabled.
const PCIEXBAR: usize = 0x60;
const PCIEXBAR_ENABLE: u64 = 1;
/// Address bits 26 to 35, length, enabled (5.1.13).
const PCIEXBAR_WRITABLE: u64 = 0xf_fc00_0007;
/// PAM0, then PAM1 to PAM6.
const PAM: usize = 0x90;
const PAM_WRITABLE: [u8; PAM_REGISTERS] = [0x30, 0x33, 0x33, 0x33, 0x33, 0x33, 0x33];

/// The bridge.
pub(crate) struct HostBridge {
    registers: Registers,
    /// Of a machine with firmware.
    moves: Option<Moves>,
}

/// What firmware moves by the bridge's registers.
pub(crate) struct Moves {
    pub(crate) decode: Arc<Decode>,
    pub(crate) shadow: Arc<Shadow>,
    pub(crate) events: GuestEvents,
}

/// State of a bridge whose registers can be written.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HostBridgeState {
    /// Configuration space.
    #[prost(bytes = "vec", tag = "1")]
    config_space: Vec<u8>,
}

impl DeviceState for HostBridgeState {
    const KIND: &'static str = "q35-host-bridge";
    const VERSION: u32 = 1;
}

impl HostBridge {
    /// A bridge that is all read only: configuration space does not move.
    pub(super) fn fixed() -> Self {
        let ecam = (ECAM_BASE | PCIEXBAR_ENABLE).to_le_bytes();
        Self {
            registers: Registers::new(&[
                (0, &VENDOR_INTEL),
                (2, &DEVICE_Q35_MCH),
                (9, &CLASS_HOST_BRIDGE),
                (PCIEXBAR, &ecam),
            ]),
            moves: None,
        }
    }

    /// A bridge after power-on, for firmware to set up.
    pub(crate) fn with_firmware(moves: Moves) -> Self {
        let registers = Registers::new(&[
            (0, &VENDOR_INTEL),
            (2, &DEVICE_Q35_MCH),
            (9, &CLASS_HOST_BRIDGE),
            (SUBSYSTEM, &SUBSYSTEM_VIRTUAL),
        ]);
        let ecam = PCIEXBAR_WRITABLE.to_le_bytes();
        Self {
            registers: registers.writable(&[(PCIEXBAR, &ecam), (PAM, &PAM_WRITABLE)]),
            moves: Some(moves),
        }
    }

    /// Goes on where the bridge was saved.
    pub(crate) fn load(&mut self, payloads: &mut Payloads) -> Result<(), StateError> {
        let state: HostBridgeState = payloads.take()?;
        if !self.registers.load(&state.config_space) {
            return Err(HostBridgeState::wrong(
                "configuration space has another length",
            ));
        }
        self.follow();
        Ok(())
    }

    /// Makes everything be where the registers say.
    fn follow(&self) {
        let Some(moves) = &self.moves else {
            return;
        };
        moves
            .decode
            .set_ecam(u64::from_le_bytes(self.registers.array(PCIEXBAR)));
        if let Err(error) = moves.shadow.set(self.registers.array(PAM)) {
            moves.events.post(GuestEvent::HostFailure(chain(&error)));
        }
    }
}

impl PciFunction for HostBridge {
    fn config_read(&mut self, offset: u16, data: &mut [u8]) {
        self.registers.read(offset, data);
    }

    fn config_write(&mut self, offset: u16, data: &[u8]) -> ConfigEffect {
        self.registers.write(offset, data);
        self.follow();
        ConfigEffect::default()
    }

    fn reset(&mut self) {
        self.registers.reset();
        self.follow();
    }

    /// Without firmware nothing in it changes.
    fn save(&self) -> Vec<Payload> {
        let config_space = self.registers.save();
        let state = HostBridgeState { config_space };
        self.moves.iter().map(|_| state.to_payload()).collect()
    }
}
