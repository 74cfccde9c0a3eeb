//! The q35 host bridge (Intel 3 Series Express Chipset Family, 82G33 MCH), as far as software looks.

use std::sync::Arc;

use vmm_devices::DeviceState;
use vmm_memory::ECAM_BASE;

use super::register_function::{ApplyRegisters, RegisterFunction};
use super::registers::Registers;
use crate::chain::chain;
use crate::events::GuestEvents;
use crate::firmware::decode::Decode;
use crate::firmware::shadow::{REGISTERS as PAM_REGISTERS, Shadow};
use crate::guest_event::GuestEvent;

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

/// The bridge of a machine with firmware.
pub(crate) type HostBridge = RegisterFunction<Moves>;

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

impl From<Vec<u8>> for HostBridgeState {
    fn from(config_space: Vec<u8>) -> Self {
        Self { config_space }
    }
}

impl From<HostBridgeState> for Vec<u8> {
    fn from(state: HostBridgeState) -> Self {
        state.config_space
    }
}

/// The registers of a bridge that is all read only: configuration space does not move.
pub(super) fn fixed() -> Registers {
    let ecam = (ECAM_BASE | PCIEXBAR_ENABLE).to_le_bytes();
    Registers::new(&[
        (0, &VENDOR_INTEL),
        (2, &DEVICE_Q35_MCH),
        (9, &CLASS_HOST_BRIDGE),
        (PCIEXBAR, &ecam),
    ])
}

impl HostBridge {
    /// A bridge after power-on, for firmware to set up.
    pub(crate) fn with_firmware(moves: Moves) -> Self {
        let registers = Registers::new(&[
            (0, &VENDOR_INTEL),
            (2, &DEVICE_Q35_MCH),
            (9, &CLASS_HOST_BRIDGE),
            (SUBSYSTEM, &SUBSYSTEM_VIRTUAL),
        ]);
        let ecam = PCIEXBAR_WRITABLE.to_le_bytes();
        let registers = registers.writable(&[(PCIEXBAR, &ecam), (PAM, &PAM_WRITABLE)]);
        Self::new(registers, moves)
    }
}

impl ApplyRegisters for Moves {
    type State = HostBridgeState;

    fn apply(&self, registers: &Registers) {
        let ecam = u64::from_le_bytes(registers.array(PCIEXBAR));
        self.decode.set_ecam(ecam);
        if let Err(error) = self.shadow.set(registers.array(PAM)) {
            self.events.post(GuestEvent::HostFailure(chain(&error)));
        }
    }
}
