//! The ISA bridge of the ICH9 (Intel I/O Controller Hub 9 Family, 13.1), as far as firmware looks: where
//! ACPI hardware and the registers of the root complex are. Interrupts of functions are messages, so the
//! routing of interrupt pins is only kept.

use std::sync::Arc;

use vmm_devices::DeviceState;

use super::host_bridge::{SUBSYSTEM, SUBSYSTEM_VIRTUAL};
use super::register_function::{ApplyRegisters, RegisterFunction};
use super::registers::Registers;
use crate::firmware::decode::Decode;

const VENDOR_INTEL: [u8; 2] = 0x8086u16.to_le_bytes();
const DEVICE_ICH9: [u8; 2] = 0x2918u16.to_le_bytes();
/// Revision, then class: ISA bridge.
const REVISION_AND_CLASS: [u8; 4] = [2, 0, 1, 6];
/// I/O space, memory space and bus master are always on.
const COMMAND_ON: [u8; 2] = [7, 0];
const COMMAND: usize = 0x04;
const SERR_ENABLE: [u8; 2] = [0x40, 0x01];
const PMBASE: usize = 0x40;
/// Bit 0 says that it is a port.
const PMBASE_PORT: [u8; 1] = [1];
const PMBASE_WRITABLE: [u8; 2] = [0x80, 0xff];
const ACPI_CONTROL: usize = 0x44;
const ACPI_CONTROL_WRITABLE: [u8; 1] = [0x87];
const ACPI_ENABLED: u8 = 1 << 7;
const PIRQ_A: usize = 0x60;
const PIRQ_E: usize = 0x68;
/// Not routed.
const PIRQ_OFF: [u8; 4] = [0x80; 4];
const PIRQ_WRITABLE: [u8; 4] = [0x8f; 4];
const RCBA: usize = 0xf0;
const RCBA_WRITABLE: [u8; 4] = 0xffff_c001u32.to_le_bytes();

/// The bridge.
pub(crate) type LpcBridge = RegisterFunction<Arc<Decode>>;

/// State of the bridge.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LpcState {
    /// Configuration space.
    #[prost(bytes = "vec", tag = "1")]
    config_space: Vec<u8>,
}

impl DeviceState for LpcState {
    const KIND: &'static str = "ich9-lpc";
    const VERSION: u32 = 1;
}

impl From<Vec<u8>> for LpcState {
    fn from(config_space: Vec<u8>) -> Self {
        Self { config_space }
    }
}

impl From<LpcState> for Vec<u8> {
    fn from(state: LpcState) -> Self {
        state.config_space
    }
}

impl LpcBridge {
    /// A bridge after power-on; what its registers say goes to `decode`.
    pub(crate) fn isa(decode: Arc<Decode>) -> Self {
        let registers = Registers::new(&[
            (0, &VENDOR_INTEL),
            (2, &DEVICE_ICH9),
            (COMMAND, &COMMAND_ON),
            (8, &REVISION_AND_CLASS),
            (SUBSYSTEM, &SUBSYSTEM_VIRTUAL),
            (PMBASE, &PMBASE_PORT),
            (PIRQ_A, &PIRQ_OFF),
            (PIRQ_E, &PIRQ_OFF),
        ]);
        let registers = registers.writable(&[
            (COMMAND, &SERR_ENABLE),
            (PMBASE, &PMBASE_WRITABLE),
            (ACPI_CONTROL, &ACPI_CONTROL_WRITABLE),
            (PIRQ_A, &PIRQ_WRITABLE),
            (PIRQ_E, &PIRQ_WRITABLE),
            (RCBA, &RCBA_WRITABLE),
        ]);
        Self::new(registers, decode)
    }
}

impl ApplyRegisters for Arc<Decode> {
    type State = LpcState;

    fn apply(&self, registers: &Registers) {
        let base = u16::from_le_bytes(registers.array(PMBASE));
        let [control] = registers.array(ACPI_CONTROL);
        let [port] = PMBASE_PORT;
        self.set_power(base & !u16::from(port), control & ACPI_ENABLED != 0);
        self.set_root_complex(u32::from_le_bytes(registers.array(RCBA)));
    }
}

#[cfg(test)]
mod tests {
    use vmm_devices::{Payloads, PciFunction};

    use super::*;

    fn write(bridge: &mut LpcBridge, offset: u16, data: &[u8]) {
        let _ = bridge.config_write(offset, data);
    }

    #[test]
    fn ports_and_registers_are_where_firmware_puts_them() {
        let decode = Arc::new(Decode::power_on());
        let mut bridge = LpcBridge::isa(Arc::clone(&decode));
        // As SeaBIOS does.
        write(&mut bridge, 0x40, &0x0601u32.to_le_bytes());
        assert_eq!(decode.power(), None);
        write(&mut bridge, 0x44, &[0x80]);
        assert_eq!(decode.power(), Some(0x600));
        write(&mut bridge, 0xf0, &0xfed1_c001u32.to_le_bytes());
        assert_eq!(decode.root_complex_offset(0xfed1_c004), Some(4));
        write(&mut bridge, 0x60, &[10, 10, 11, 11]);
        let mut routes = [0; 4];
        bridge.config_read(0x60, &mut routes);
        assert_eq!(routes, [10, 10, 11, 11]);
        let saved = bridge.save();
        bridge.reset();
        assert_eq!(decode.power(), None);
        bridge.load(&mut Payloads::new(saved.clone())).unwrap();
        assert_eq!(decode.power(), Some(0x600));
        assert_eq!(bridge.save(), saved);
    }
}
