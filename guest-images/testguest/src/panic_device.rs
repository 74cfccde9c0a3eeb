//! Panic devices: what a kernel says of its end (QEMU, `docs/specs/pvpanic.rst`).

use crate::acpi::Acpi;
use crate::memory::Registers;
use crate::pci::Ecam;
use crate::serial::console_line;
use crate::{io, power};

const IDS: (u16, u16) = (0x1b36, 0x0011);
pub(crate) const PORT: u16 = 0x505;

/// Where the register is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PanicRegister {
    /// I/O port 0x505.
    Port,
    /// BAR 0 of a PCI function.
    Pci,
}

/// Writes `value` to the register; a guest that may go on after that switches the power off.
pub fn run(acpi: Option<&Acpi>, place: PanicRegister, value: u8) -> ! {
    let registers = match place {
        PanicRegister::Port => None,
        PanicRegister::Pci => acpi
            .and_then(|acpi| Ecam::map(acpi.ecam.as_ref()?))
            .as_ref()
            .and_then(find),
    };
    let supported = match (&registers, place) {
        (Some(registers), _) => registers.read8(0),
        (None, PanicRegister::Port) => io::inb(PORT),
        (None, PanicRegister::Pci) => {
            console_line!("TESTGUEST pvpanic FAIL error=\"no pvpanic-pci\"");
            power::off()
        }
    };
    console_line!("TESTGUEST pvpanic ok supported={supported:#x}");
    match registers {
        Some(registers) => registers.write8(0, value),
        None => io::outb(PORT, value),
    }
    console_line!("TESTGUEST pvpanic-after ok");
    power::off()
}

/// The register of the PCI function, switched on.
pub(crate) fn find(ecam: &Ecam) -> Option<Registers> {
    let function = ecam.find(IDS)?;
    let registers = Registers::map(function.bar_address(0)?, 0x1000)?;
    function.enable();
    Some(registers)
}
