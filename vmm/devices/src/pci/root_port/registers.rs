//! Offsets and bits of a root port's configuration space.

/// `COMMAND` (PCI 3.0, 6.2.2).
pub(super) const COMMAND: u16 = 0x04;
/// The port decodes and forwards memory.
pub(super) const COMMAND_MEMORY: u16 = 1 << 1;
/// What firmware sets on a bridge that it has programmed: memory and bus master.
pub(super) const COMMAND_FORWARD: u16 = COMMAND_MEMORY | 1 << 2;

/// Header of type 1 (PCI-to-PCI Bridge 1.2, 3.2).
pub(super) const HEADER_TYPE: usize = 0x0e;
/// Primary, secondary, subordinate; a byte each.
pub(super) const BUS_NUMBERS: u16 = 0x18;
/// Base and limit in units of 1 MiB, in the upper 12 bits of 16 each.
pub(super) const MEMORY_WINDOW: u16 = 0x20;
/// The same for prefetchable memory; the lowest bit says that upper halves follow.
pub(super) const PREFETCHABLE_WINDOW: u16 = 0x24;
/// Upper 32 bits of base, then of limit.
pub(super) const PREFETCHABLE_UPPER: u16 = 0x28;
/// Bridge Control (offset of 16 bits).
pub(super) const BRIDGE_CONTROL: u16 = 0x3e;
/// Parity and SERR forwarding, secondary bus reset.
pub(super) const BRIDGE_CONTROL_WRITABLE: u16 = 0b11 | SECONDARY_RESET;
/// The bus behind is held in reset.
pub(super) const SECONDARY_RESET: u16 = 1 << 6;
/// Low bits of a window register that are no address bits.
pub(super) const WINDOW_LOW_BITS: u16 = 0xf;
/// 64-bit addressing in a prefetchable window register.
pub(super) const WINDOW_64_BITS: u16 = 1;

/// Capability identifiers.
pub(super) const CAPABILITY_MSI: u8 = 0x05;
pub(super) const CAPABILITY_SUBSYSTEM: u8 = 0x0d;
pub(super) const CAPABILITY_EXPRESS: u8 = 0x10;

/// PCI Express capability (PCI Express Base 4.0, 7.5.3); offsets from its start.
pub(super) mod express {
    /// Bytes behind identifier and link.
    pub(in crate::pci::root_port) const BODY_BYTES: usize = 0x3a;
    pub(in crate::pci::root_port) const CAPABILITIES: usize = 0x02;
    /// Version 2, root port, slot implemented; interrupt message 0.
    pub(in crate::pci::root_port) const ROOT_PORT_WITH_SLOT: u16 = 2 | 4 << 4 | 1 << 8;
    pub(in crate::pci::root_port) const DEVICE_CAPABILITIES: usize = 0x04;
    /// Role-based error reporting, which the specification demands.
    pub(in crate::pci::root_port) const ROLE_BASED_ERRORS: u32 = 1 << 15;
    pub(in crate::pci::root_port) const DEVICE_CONTROL: usize = 0x08;
    /// All but the bits of features that the port has not.
    pub(in crate::pci::root_port) const DEVICE_CONTROL_WRITABLE: u16 = 0x78ff;
    pub(in crate::pci::root_port) const LINK_CAPABILITIES: usize = 0x0c;
    /// 2.5 GT/s, one lane, tells whether the link is active. The port's number is its device's.
    pub(in crate::pci::root_port) const LINK: u32 = 1 | 1 << 4 | 1 << 20;
    pub(in crate::pci::root_port) const LINK_SPEED_AND_WIDTH: u16 = 1 | 1 << 4;
    pub(in crate::pci::root_port) const LINK_CONTROL: usize = 0x10;
    /// ASPM, common clock, extended synchronisation. Disabling the link is not offered.
    pub(in crate::pci::root_port) const LINK_CONTROL_WRITABLE: u16 = 0b1100_0011;
    pub(in crate::pci::root_port) const LINK_STATUS: usize = 0x12;
    pub(in crate::pci::root_port) const LINK_ACTIVE: u16 = 1 << 13;
    pub(in crate::pci::root_port) const SLOT_CAPABILITIES: usize = 0x14;
    /// Attention button, power controller, both indicators, hot-plug; commands complete at once.
    /// The slot's number is 0 ("on the board"): guests then name interfaces by their bus.
    pub(in crate::pci::root_port) const SLOT: u32 = 1 | 1 << 1 | 1 << 3 | 1 << 4 | 1 << 6 | 1 << 18;
    pub(in crate::pci::root_port) const SLOT_CONTROL: usize = 0x18;
    pub(in crate::pci::root_port) const SLOT_CONTROL_WRITABLE: u16 = 0x17ff;
    /// Events that are reported may interrupt.
    pub(in crate::pci::root_port) const HOT_PLUG_INTERRUPT: u16 = 1 << 5;
    /// A change of the link's state is reported.
    pub(in crate::pci::root_port) const LINK_CHANGE_ENABLED: u16 = 1 << 12;
    /// Button, fault, retention latch, presence: enabled by the bit that reports them.
    pub(in crate::pci::root_port) const SAME_BIT_EVENTS: u16 = 0b1111;
    pub(in crate::pci::root_port) const POWER_OFF: u16 = 1 << 10;
    /// Attention indicator off, power indicator on.
    pub(in crate::pci::root_port) const INDICATORS_OCCUPIED: u16 = 3 << 6 | 1 << 8;
    /// Both off.
    pub(in crate::pci::root_port) const INDICATORS_EMPTY: u16 = 3 << 6 | 3 << 8;
    pub(in crate::pci::root_port) const SLOT_STATUS: usize = 0x1a;
    /// Cleared by writing ones.
    pub(in crate::pci::root_port) const SLOT_EVENTS: u16 = 0b1_1111 | LINK_CHANGED;
    pub(in crate::pci::root_port) const PRESENT: u16 = 1 << 6;
    pub(in crate::pci::root_port) const LINK_CHANGED: u16 = 1 << 8;
    pub(in crate::pci::root_port) const ROOT_CONTROL: usize = 0x1c;
    /// Error and power management event enables, which nothing ever triggers.
    pub(in crate::pci::root_port) const ROOT_CONTROL_WRITABLE: u16 = 0xf;
    pub(in crate::pci::root_port) const LINK_CAPABILITIES_2: usize = 0x2c;
    /// 2.5 GT/s only.
    pub(in crate::pci::root_port) const SPEEDS: u32 = 1 << 1;
    pub(in crate::pci::root_port) const LINK_CONTROL_2: usize = 0x30;
    pub(in crate::pci::root_port) const TARGET_SPEED: u16 = 1;
}

/// MSI capability, 64-bit with a mask (PCI 3.0, 6.8.1); offsets from its start.
pub(super) mod msi {
    /// Bytes behind identifier and link.
    pub(in crate::pci::root_port) const BODY_BYTES: usize = 22;
    pub(in crate::pci::root_port) const CONTROL: u16 = 2;
    /// One vector, 64-bit address, maskable.
    pub(in crate::pci::root_port) const CONTROL_FIXED: u16 = 1 << 7 | 1 << 8;
    pub(in crate::pci::root_port) const ENABLE: u16 = 1;
    pub(in crate::pci::root_port) const ADDRESS: u16 = 4;
    pub(in crate::pci::root_port) const DATA: u16 = 12;
    pub(in crate::pci::root_port) const MASK: u16 = 16;
    pub(in crate::pci::root_port) const PENDING: u16 = 20;
    pub(in crate::pci::root_port) const VECTOR_0: u32 = 1;
}
