//! PCI functions found through memory-mapped configuration space (ECAM), with the BARs that
//! firmware or the VMM gave them.

use core::fmt;

use testguest_lib::tables::EcamWindow;

use crate::lapic::Lapic;
use crate::memory::Registers;

const FUNCTION_BYTES: usize = 4096;
const FUNCTIONS_PER_BUS: usize = 256;

/// Offsets in configuration space (PCI 3.0, 6.1).
const VENDOR_ID: usize = 0x00;
const DEVICE_ID: usize = 0x02;
pub(crate) const COMMAND: usize = 0x04;
const STATUS: usize = 0x06;
const HEADER_TYPE: usize = 0x0e;
pub(crate) const BAR0: usize = 0x10;
const SECONDARY_BUS: usize = 0x19;
const CAPABILITIES: usize = 0x34;

const COMMAND_MEMORY: u16 = 1 << 1;
const COMMAND_BUS_MASTER: u16 = 1 << 2;
const COMMAND_INTX_DISABLE: u16 = 1 << 10;
const STATUS_CAPABILITIES: u16 = 1 << 4;
const HEADER_MULTI_FUNCTION: u8 = 0x80;
const HEADER_BRIDGE: u8 = 1;

const CAPABILITY_MSIX: u8 = 0x11;
/// A list longer than configuration space has room for goes in circles.
const MAX_CAPABILITIES: usize = 48;

const MSIX_ENABLE: u16 = 1 << 15;
const MSIX_FUNCTION_MASK: u16 = 1 << 14;
const MSIX_ENTRY_BYTES: usize = 16;
const MSI_ADDRESS: u64 = 0xfee0_0000;

/// Configuration space of segment 0.
pub struct Ecam {
    registers: Registers,
    first_bus: u8,
    last_bus: u8,
}

/// One function's configuration space.
#[derive(Clone, Copy)]
pub struct Function {
    registers: Registers,
    bus: u8,
    device: u8,
    function: u8,
}

impl Ecam {
    /// Maps the window that MCFG describes.
    pub fn map(window: &EcamWindow) -> Option<Self> {
        let bus_bytes = (FUNCTIONS_PER_BUS * FUNCTION_BYTES) as u64;
        let buses = u64::from(window.last_bus - window.first_bus) + 1;
        let start = window
            .base
            .checked_add(u64::from(window.first_bus) * bus_bytes)?;
        Some(Self {
            registers: Registers::map(start, buses * bus_bytes)?,
            first_bus: window.first_bus,
            last_bus: window.last_bus,
        })
    }

    /// Calls `visit` for every function: the first bus, then each bus behind a bridge.
    pub fn for_each(&self, mut visit: impl FnMut(Function)) {
        let mut wanted = [false; 256];
        let mut visited = [false; 256];
        wanted[usize::from(self.first_bus)] = true;
        while let Some(bus) =
            (0..=u8::MAX).find(|bus| wanted[usize::from(*bus)] && !visited[usize::from(*bus)])
        {
            visited[usize::from(bus)] = true;
            for device in 0..32 {
                for function in self.functions(bus, device) {
                    if let Some(behind) = function.secondary_bus() {
                        wanted[usize::from(behind)] = self.decodes(behind);
                    }
                    visit(function);
                }
            }
        }
    }

    /// The last function with these ids.
    pub fn find(&self, ids: (u16, u16)) -> Option<Function> {
        let mut found = None;
        self.for_each(|function| {
            if function.ids() == ids {
                found = Some(function);
            }
        });
        found
    }

    fn decodes(&self, bus: u8) -> bool {
        (self.first_bus..=self.last_bus).contains(&bus)
    }

    fn functions(&self, bus: u8, device: u8) -> impl Iterator<Item = Function> + '_ {
        let first = self.function(bus, device, 0);
        let several = first.is_some_and(|first| first.has_siblings());
        (0..8).filter_map(move |number| match number {
            0 => first,
            _ if several => self.function(bus, device, number),
            _ => None,
        })
    }

    /// The function at a place that the window covers.
    pub fn function(&self, bus: u8, device: u8, function: u8) -> Option<Function> {
        let bus_index = bus.checked_sub(self.first_bus)?;
        let index =
            (usize::from(bus_index) << 8) | usize::from(device) << 3 | usize::from(function);
        let registers = self
            .registers
            .part(index * FUNCTION_BYTES, FUNCTION_BYTES)?;
        (registers.read16(VENDOR_ID) != 0xffff).then_some(Function {
            registers,
            bus,
            device,
            function,
        })
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}:{:02x}.{}", self.bus, self.device, self.function)
    }
}

impl Function {
    /// Vendor and device id.
    pub fn ids(&self) -> (u16, u16) {
        (
            self.registers.read16(VENDOR_ID),
            self.registers.read16(DEVICE_ID),
        )
    }

    /// Bus, device and function number.
    pub fn numbers(&self) -> (u8, u8, u8) {
        (self.bus, self.device, self.function)
    }

    /// Configuration space.
    pub fn configuration(&self) -> &Registers {
        &self.registers
    }

    fn has_siblings(&self) -> bool {
        self.registers.read8(HEADER_TYPE) & HEADER_MULTI_FUNCTION != 0
    }

    /// Of a bridge, the bus behind it.
    pub fn secondary_bus(&self) -> Option<u8> {
        let header = self.registers.read8(HEADER_TYPE) & !HEADER_MULTI_FUNCTION;
        let bus = self.registers.read8(SECONDARY_BUS);
        (header == HEADER_BRIDGE && bus != 0).then_some(bus)
    }

    /// Lets the function answer to its BARs and reach memory; INTx stays off.
    pub fn enable(&self) {
        let command = self.registers.read16(COMMAND);
        let wanted = COMMAND_MEMORY | COMMAND_BUS_MASTER | COMMAND_INTX_DISABLE;
        self.registers.write16(COMMAND, command | wanted);
    }

    /// Keeps the function from memory.
    pub fn forbid_memory_access(&self) {
        let command = self.registers.read16(COMMAND);
        self.registers
            .write16(COMMAND, command & !COMMAND_BUS_MASTER);
    }

    /// Offsets of the capabilities with this id.
    pub fn capabilities(&self, id: u8) -> impl Iterator<Item = usize> + '_ {
        let present = self.registers.read16(STATUS) & STATUS_CAPABILITIES != 0;
        let mut next = if present {
            self.registers.read8(CAPABILITIES) & 0xfc
        } else {
            0
        };
        core::iter::from_fn(move || {
            let offset = usize::from(next);
            if offset == 0 {
                return None;
            }
            next = self.registers.read8(offset + 1) & 0xfc;
            Some(offset)
        })
        .take(MAX_CAPABILITIES)
        .filter(move |offset| self.registers.read8(*offset) == id)
    }

    /// The address that memory BAR `index` holds; `None` for I/O BARs and those nobody has set.
    pub fn bar_address(&self, index: u8) -> Option<u64> {
        const IO_SPACE: u32 = 1;
        const TYPE_MASK: u32 = 0x6;
        const TYPE_64_BITS: u32 = 0x4;
        if index > 5 {
            return None;
        }
        let offset = BAR0 + usize::from(index) * 4;
        let low = self.registers.read32(offset);
        if low & IO_SPACE != 0 {
            return None;
        }
        let mut address = u64::from(low & !0xf);
        if low & TYPE_MASK == TYPE_64_BITS && index < 5 {
            address |= u64::from(self.registers.read32(offset + 4)) << 32;
        }
        (address != 0).then_some(address)
    }

    /// Finds the MSI-X table.
    pub fn msix(&self) -> Option<Msix> {
        let capability = self.capabilities(CAPABILITY_MSIX).next()?;
        let entries = (self.registers.read16(capability + 2) & 0x7ff) + 1;
        let table = self.registers.read32(capability + 4);
        let [bar, ..] = (table & 7).to_le_bytes();
        let start = self.bar_address(bar)?.checked_add(u64::from(table & !7))?;
        let bytes = usize::from(entries) * MSIX_ENTRY_BYTES;
        let table = Registers::map(start, bytes as u64)?;
        Some(Msix {
            configuration: self.registers,
            capability,
            table,
            entries,
        })
    }
}

/// The MSI-X capability of a function.
pub struct Msix {
    configuration: Registers,
    capability: usize,
    table: Registers,
    entries: u16,
}

impl Msix {
    /// Length of the table.
    pub fn entries(&self) -> u16 {
        self.entries
    }

    /// The MSI-X table, in the BAR that the capability names.
    pub fn table(&self) -> &Registers {
        &self.table
    }

    /// Offset of the capability in configuration space.
    pub fn capability(&self) -> usize {
        self.capability
    }

    /// Sends entry `index` to this CPU as `vector`.
    pub fn set(&self, index: u16, lapic: &Lapic, vector: u8) {
        let entry = usize::from(index) * MSIX_ENTRY_BYTES;
        self.table
            .write64(entry, MSI_ADDRESS | u64::from(lapic.id() & 0xff) << 12);
        self.table.write32(entry + 8, u32::from(vector));
        self.table.write32(entry + 12, 0);
    }

    /// Lets the function send its messages.
    pub fn enable(&self) {
        let control = self.configuration.read16(self.capability + 2);
        let control = (control | MSIX_ENABLE) & !MSIX_FUNCTION_MASK;
        self.configuration.write16(self.capability + 2, control);
    }

    /// Stops all messages.
    pub fn disable(&self) {
        let control = self.configuration.read16(self.capability + 2);
        self.configuration
            .write16(self.capability + 2, control & !MSIX_ENABLE);
    }
}
