//! ACPI tables (ACPI 6.3): how guests find processors, PCI, the power button and power-off.
//!
//! Hardware is described as full ("not reduced") ACPI, as q35 has it, so that stock firmware and
//! kernels find the fixed registers they expect. There is no SMI: ACPI mode is always on.

mod dsdt;
mod osc;
mod tables;

use vm_memory::{Bytes, GuestAddress};
use vmm_kvm::CpuTopology;
use vmm_memory::{GuestRam, Layout};

use crate::boot::{ACPI_BASE, ACPI_BYTES};

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
/// Length of the general purpose event block.
pub(crate) const GPE0_BYTES: u8 = 8;
/// System control interrupt.
pub(crate) const SCI_GSI: u32 = 9;
/// Sleep type of S5, as q35 has it.
pub(crate) const SLEEP_TYPE_S5: u8 = 0;
/// Port and value of the reset register.
pub(crate) const RESET_PORT: u16 = 0xcf9;
/// Value that resets the machine.
pub(crate) const RESET_VALUE: u8 = 6;

/// The tables did not fit.
#[derive(Debug, thiserror::Error)]
pub enum AcpiError {
    /// More processors or windows than the area below 1 MiB has room for.
    #[error("{bytes} bytes of ACPI tables do not fit into {ACPI_BYTES} bytes")]
    TooLarge {
        /// Their size.
        bytes: u64,
    },
    /// Guest memory is smaller than 1 MiB.
    #[error("ACPI tables could not be written to guest memory")]
    Memory(#[source] vm_memory::GuestMemoryError),
}

/// Writes all tables; returns the address of the RSDP.
pub(crate) fn write_tables(
    ram: &GuestRam,
    layout: &Layout,
    topology: CpuTopology,
) -> Result<u64, AcpiError> {
    let mut area = Area {
        bytes: vec![0; tables::RSDP_BYTES],
    };
    let dsdt = area.add(&dsdt::dsdt(layout));
    let facs = area.add(&tables::facs());
    let entries = [
        area.add(&tables::fadt(dsdt, facs)),
        area.add(&tables::madt(topology)),
        area.add(&tables::mcfg()),
    ];
    let xsdt = area.add(&tables::xsdt(&entries));
    area.put_root(&tables::rsdp(xsdt));
    let length = area.bytes.len() as u64;
    if length > ACPI_BYTES {
        return Err(AcpiError::TooLarge { bytes: length });
    }
    ram.write_slice(&area.bytes, GuestAddress(ACPI_BASE))
        .map_err(AcpiError::Memory)?;
    Ok(ACPI_BASE)
}

/// Tables one after the other, the RSDP first.
struct Area {
    bytes: Vec<u8>,
}

impl Area {
    /// FACS wants 64 byte alignment; it does no harm to the others.
    const ALIGN: usize = 64;

    fn add(&mut self, table: &[u8]) -> u64 {
        let at = self.bytes.len().next_multiple_of(Self::ALIGN);
        self.bytes.resize(at, 0);
        self.bytes.extend_from_slice(table);
        ACPI_BASE + at as u64
    }

    fn put_root(&mut self, rsdp: &[u8]) {
        if let Some(root) = self.bytes.get_mut(..rsdp.len()) {
            root.copy_from_slice(rsdp);
        }
    }
}
