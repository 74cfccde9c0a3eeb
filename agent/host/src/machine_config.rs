//! The machine of a VMI, fully resolved: the VMM chooses nothing.
//!
//! Where its PCI functions sit is recorded since its first launch (`agent_plan::PciAddresses`).

mod cpus;
mod devices;
mod error;
mod opened;
mod placement;
mod vhost;

use std::os::fd::BorrowedFd;

use agent_domain::{HugepageSize, RebootPolicy, Vmi};
use agent_plan::{CpuGrant, PciAddresses};
use proto_machine::for_each_smbios_text;
use proto_machine::smbios::SmbiosConfig;
use proto_vmm::v1;

pub(crate) use error::AssembleError;
use opened::Descriptors;
pub(crate) use opened::{Opened, OpenedBoot, OpenedDisk, OpenedTap, OpenedVsock};
pub(crate) use vhost::offer_vhost;

/// I/O ports that only tests and benchmarks want.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DebugIoPorts {
    /// The first write to port 0x0d02 is timed.
    pub boot_timestamp: bool,
    /// A write to port 0x0d04 ends the guest.
    pub exit: bool,
}

/// The operator's settings for every machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MachinePolicy {
    pub(crate) console_log_bytes: u64,
    pub(crate) memory_mapped_pci: bool,
    pub(crate) debug_ports: DebugIoPorts,
}

/// What distinguishes this start of a guest from others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Launch<'a> {
    pub(crate) incarnation: u64,
    pub(crate) addresses: &'a PciAddresses,
    /// On which CPUs of the node it runs; `None`: on any.
    pub(crate) cpus: Option<&'a CpuGrant>,
    /// Drawn anew for each: a guest that is made of a snapshot learns from it that it may be one of
    /// several.
    pub(crate) generation_id: [u8; 16],
}

/// The configuration of one VMM, and its descriptors in the order that the configuration means.
pub(crate) fn assemble<'a>(
    vmi: &Vmi,
    launch: Launch<'_>,
    opened: &'a Opened,
    policy: MachinePolicy,
) -> Result<(v1::MachineConfig, Vec<BorrowedFd<'a>>), AssembleError> {
    let mut descriptors = Descriptors::default();
    let (kernel, firmware) = boot(&opened.boot, launch.addresses, policy, &mut descriptors)?;
    let machine = v1::MachineConfig {
        vmi_uid: vmi.uid.to_string(),
        vmi_namespace: vmi.namespace.to_string(),
        vmi_name: vmi.name.to_string(),
        incarnation: launch.incarnation,
        cpus: Some(placement::pinned(cpus::cpus(vmi), launch.cpus)),
        clock: Some(cpus::clock(vmi)?),
        memory: Some(v1::Memory {
            size_bytes: vmi.memory_bytes,
            max_size_bytes: vmi.memory.max_bytes,
            hugepage_bytes: vmi.memory.hugepages.map_or(0, HugepageSize::bytes),
            transparent_hugepages: vmi.memory.hugepages.is_none(),
            numa_nodes: placement::numa_nodes(vmi, launch.cpus),
            ..v1::Memory::default()
        }),
        kvm_fd: descriptors.add(&opened.kvm),
        exit_record_fd: descriptors.add(&opened.exit_record),
        serial: Some(v1::Serial {
            log_fd: Some(descriptors.add(&opened.console_log)),
            log_max_bytes: policy.console_log_bytes,
        }),
        kernel,
        firmware,
        devices: devices::devices(vmi, launch.addresses, opened, &mut descriptors)?,
        reboot_policy: match vmi.reboot_policy {
            RebootPolicy::Reboot => v1::RebootPolicy::Unspecified.into(),
            RebootPolicy::Terminate => v1::RebootPolicy::Terminate.into(),
        },
        debug: Some(v1::Debug {
            boot_timestamp_port: policy.debug_ports.boot_timestamp,
            debug_exit_port: policy.debug_ports.exit,
        }),
        smbios: Some(smbios(&vmi.identity)),
        isa_pvpanic: vmi.panic_devices.isa,
        on_panic: v1::PanicPolicy::Unspecified.into(),
        vm_gen_id: launch.generation_id.to_vec(),
    };
    Ok((machine, descriptors.0))
}

/// What is booted: one of the two.
fn boot<'a>(
    opened: &'a OpenedBoot,
    addresses: &PciAddresses,
    policy: MachinePolicy,
    descriptors: &mut Descriptors<'a>,
) -> Result<(Option<v1::KernelBoot>, Option<v1::FirmwareBoot>), AssembleError> {
    match opened {
        OpenedBoot::Kernel {
            kernel,
            initrd,
            cmdline,
        } => {
            let boot = v1::KernelBoot {
                kernel_fd: descriptors.add(kernel),
                initrd_fd: initrd.as_ref().map(|fd| descriptors.add(fd)),
                cmdline: cmdline.clone(),
                entry: v1::KernelEntry::Unspecified.into(),
                memory_mapped_pci: policy.memory_mapped_pci,
            };
            Ok((Some(boot), None))
        }
        OpenedBoot::Firmware {
            code,
            variables,
            order,
            serial,
        } => {
            let order = order
                .iter()
                .map(|device| devices::address(device, addresses));
            let boot = v1::FirmwareBoot {
                code_fd: descriptors.add(code),
                variables_fd: variables.as_ref().map(|fd| descriptors.add(fd)),
                boot_order: order.collect::<Result<_, _>>()?,
                serial_console: *serial,
                ..v1::FirmwareBoot::default()
            };
            Ok((None, Some(boot)))
        }
    }
}

fn smbios(identity: &SmbiosConfig) -> v1::Smbios {
    let mut smbios = v1::Smbios {
        oem_strings: identity.oem_strings.clone(),
        ..v1::Smbios::default()
    };
    macro_rules! copy {
        ($table:ident, $text:ident) => {
            let table = smbios.$table.get_or_insert_default();
            table.$text.clone_from(&identity.$table.$text);
        };
    }
    for_each_smbios_text!(copy);
    smbios.system.get_or_insert_default().uuid = identity.system.uuid.to_vec();
    // An empty board would be shown as one without a name.
    smbios
        .base_board
        .take_if(|board| *board == v1::SmbiosBaseBoard::default());
    smbios
}

#[cfg(test)]
mod tests;
