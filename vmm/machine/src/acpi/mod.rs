//! ACPI tables (ACPI 6.3): how guests find processors, PCI, the power button and power-off.
//!
//! Hardware is described as full ("not reduced") ACPI, as q35 has it, so that stock firmware and
//! kernels find the fixed registers they expect. There is no SMI: ACPI mode is always on.

mod addresses;
mod described;
mod dsdt;
mod encoded;
mod hardware;
mod loader;
mod named;
mod numa;
mod osc;
mod paravirt;
mod tables;
#[cfg(test)]
mod tests;

use vm_memory::{Bytes, GuestAddress};
use vmm_memory::GuestRam;

pub(crate) use self::addresses::Addresses;
pub(crate) use self::described::{Described, DescribedPci};
pub(crate) use self::hardware::*;
use self::loader::Pointer;
pub(crate) use self::loader::{BlobName, Step, TableSet, Zone};
pub(crate) use self::named::NamedFunction;
pub(crate) use self::tables::{IOAPIC_ADDRESS, LAPIC_ADDRESS};
use crate::boot::{ACPI_BASE, ACPI_BYTES};

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
    #[error("ACPI's or the MultiProcessor table could not be written to guest memory")]
    Memory(#[source] vm_memory::GuestMemoryError),
}

/// All tables, with the script that places them.
pub(crate) fn tables(machine: &Described<'_>) -> TableSet {
    let Described {
        layout,
        topology,
        nodes,
        ..
    } = *machine;
    let mut set = TableSet::new();
    let facs = set.add(&tables::facs());
    let dsdt = set.add_table(&dsdt::dsdt(machine), &[]);
    let mut entries = vec![
        set.add_table(
            &tables::fadt(machine.addresses.power),
            &tables::fadt_pointers(facs, dsdt),
        ),
        set.add_table(&tables::madt(topology), &[]),
        set.add_table(
            &tables::mcfg(machine.addresses.ecam, machine.pci.last_bus),
            &[],
        ),
        set.add_table(&tables::waet(), &[]),
    ];
    if !nodes.is_empty() {
        entries.push(set.add_table(&numa::srat(nodes, topology, layout), &[]));
        entries.push(set.add_table(&numa::slit(nodes), &[]));
    }
    let (xsdt, pointers) = tables::xsdt(&entries);
    let to = set.add_table(&xsdt, &pointers);
    let pointer = Pointer {
        at: tables::RSDP_XSDT,
        bytes: 8,
        to,
    };
    set.set_root(&tables::rsdp(), pointer, &tables::RSDP_CHECKSUMS);
    set
}

/// Places all tables for a guest that boots without firmware; returns the address of the RSDP.
pub(crate) fn write_tables(ram: &GuestRam, set: &TableSet) -> Result<u64, AcpiError> {
    let mut next = ACPI_BASE;
    // All of the area is searched.
    let placed = set.place(|_, align, bytes| {
        let address = next.next_multiple_of(align);
        next = address + bytes;
        address
    });
    let bytes = next - ACPI_BASE;
    if bytes > ACPI_BYTES {
        return Err(AcpiError::TooLarge { bytes });
    }
    for blob in [&placed.root, &placed.tables] {
        ram.write_slice(&blob.bytes, GuestAddress(blob.address))
            .map_err(AcpiError::Memory)?;
    }
    Ok(placed.root.address)
}
