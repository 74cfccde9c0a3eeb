//! Tables by which firmware describes the machine to a guest, for one that boots without: ACPI with the generation id,
//! the MultiProcessor table, SMBIOS.

use vmm_kvm::GuestCpu;
use vmm_memory::{GuestRam, Layout};

use crate::acpi::{self, AcpiError, Addresses, Described, DescribedPci};
use crate::boot::Firmware;
use crate::build::error::BuildError;
use crate::config::MachineConfig;
use crate::smbios::{self, Processors, Smbios};
use crate::{generation, mp_table};

/// Writes everything; what boot protocols tell of it.
pub(crate) fn write(
    ram: &GuestRam,
    config: &MachineConfig,
    cpu: &GuestCpu,
    layout: &Layout,
    pci: &DescribedPci,
) -> Result<Firmware, BuildError> {
    let topology = cpu.topology();
    let tables = acpi::tables(&Described {
        layout,
        addresses: Addresses::fixed(layout),
        pci,
        topology,
        nodes: &config.numa_nodes,
        vm_gen_id: config.life.vm_gen_id.map(|_| generation::ADDRESS),
        fixed: config.fixed,
    });
    let rsdp = acpi::write_tables(ram, &tables)?;
    if let Some(id) = config.life.vm_gen_id {
        generation::write(ram, id).map_err(AcpiError::Memory)?;
    }
    let id = cpu.processor_id();
    mp_table::write(ram, topology, id, pci.last_bus).map_err(AcpiError::Memory)?;
    if let Some(config) = &config.smbios {
        let smbios = Smbios::new(config, Processors { topology, id }, layout);
        smbios::write(ram, &smbios)?;
    }
    Ok(Firmware { rsdp })
}
