//! What firmware tells a guest of its machine, for one that boots without: ACPI and SMBIOS.

use vmm_kvm::GuestCpu;
use vmm_memory::{GuestRam, Layout};

use crate::acpi::{self, Described};
use crate::boot::Firmware;
use crate::build::BuildError;
use crate::config::MachineConfig;
use crate::smbios::{self, Processors, Smbios};

/// Writes everything; what boot protocols tell of it.
pub(crate) fn write(
    ram: &GuestRam,
    config: &MachineConfig,
    cpu: &GuestCpu,
    layout: &Layout,
) -> Result<Firmware, BuildError> {
    let topology = cpu.topology();
    let tables = acpi::tables(&Described {
        layout,
        topology,
        nodes: &config.numa_nodes,
        vm_gen_id: None,
        isa_pvpanic: false,
    });
    let rsdp = acpi::write_tables(ram, &tables)?;
    if let Some(config) = &config.smbios {
        let id = cpu.processor_id();
        let smbios = Smbios::new(config, Processors { topology, id }, layout);
        smbios::write(ram, &smbios)?;
    }
    Ok(Firmware { rsdp })
}
