//! Ports and interrupts of the fixed hardware that the tables describe.

/// I/O ports of the fixed hardware, based at the ICH9's PMBASE in QEMU's and OVMF's use.
pub(crate) const PM_BASE: u16 = 0x600;
/// First port of COM1.
pub(crate) const COM1_PORT: u16 = 0x3f8;
/// Number of ports of COM1.
pub(crate) const COM1_PORTS: u16 = 8;
/// Interrupt of COM1.
pub(crate) const COM1_GSI: u32 = 4;
/// Length of the fixed hardware's port range.
pub(crate) const PM_PORTS: u16 = 0x40;
/// PM1a event block: status, enable.
pub(crate) const PM1A_EVENT: u16 = PM_BASE;
/// PM1a control register.
pub(crate) const PM1A_CONTROL: u16 = PM_BASE + 4;
/// Power management timer.
pub(crate) const PM_TIMER: u16 = PM_BASE + 8;
/// General purpose events: status, enable.
pub(crate) const GPE0: u16 = PM_BASE + 0x20;
/// Length of the general purpose event block, as the ICH9 has it.
pub(crate) const GPE0_BYTES: u8 = 16;
/// System control interrupt.
pub(crate) const SCI_GSI: u32 = 9;
/// Sleep type of S5, as q35 has it.
pub(crate) const SLEEP_TYPE_S5: u8 = 0;
/// Port and value of the reset register.
pub(crate) const RESET_PORT: u16 = 0xcf9;
/// Value that resets the machine.
pub(crate) const RESET_VALUE: u8 = 6;
/// The general purpose event that tells of another generation id; QEMU's number.
pub(crate) const VM_GEN_ID_EVENT: u8 = 5;
/// Where the ISA form of pvpanic is (QEMU, `docs/specs/pvpanic.rst`).
pub(crate) const PVPANIC_PORT: u16 = 0x505;
