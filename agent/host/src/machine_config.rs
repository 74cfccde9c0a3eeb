//! The machine of a VMI, fully resolved: the VMM chooses nothing.
//!
//! Where its PCI functions sit is recorded since its first launch (`agent_plan::PciPlaces`).

mod cpus;
mod devices;
mod places;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use agent_domain::{
    BaseBoard, BootDevice, DiskCache, HugepageSize, MachineIdentity, RebootPolicy, Vmi,
};
use agent_plan::{CpuGrant, PciPlaces};
use proto_vmm::v1;

use crate::config::DebugPorts;
use crate::zone::ZoneError;

/// What the host has opened for one VMM.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) kvm: OwnedFd,
    pub(crate) exit_record: OwnedFd,
    pub(crate) console_log: OwnedFd,
    pub(crate) boot: OpenedBoot,
    /// In the order of the spec.
    pub(crate) disks: Vec<OpenedDisk>,
    /// In the order of the spec.
    pub(crate) taps: Vec<OpenedTap>,
    /// Listens for those who want to talk to the guest's agent.
    pub(crate) guest_agent: OwnedFd,
    /// Of the guest's socket device, if it has one.
    pub(crate) vsock: Option<OpenedVsock>,
}

impl Opened {
    /// How many descriptors there are.
    pub(crate) fn descriptors(&self) -> usize {
        let taps = self
            .taps
            .iter()
            .map(|tap| tap.queues.len() + tap.vhost.len());
        let vsock = if self.vsock.is_some() { 2 } else { 0 };
        let second = match &self.boot {
            OpenedBoot::Kernel { initrd, .. } => initrd.is_some(),
            OpenedBoot::Firmware { variables, .. } => variables.is_some(),
        };
        // KVM, exit record, console log, kernel or firmware, guest agent.
        let bases = self.disks.iter().filter(|disk| disk.base.is_some()).count();
        5 + usize::from(second) + self.disks.len() + bases + taps.sum::<usize>() + vsock
    }
}

/// What is booted, and how.
#[derive(Debug)]
pub(crate) enum OpenedBoot {
    Kernel {
        kernel: OwnedFd,
        initrd: Option<OwnedFd>,
        cmdline: String,
    },
    Firmware {
        code: OwnedFd,
        /// Its variable store, if it has one; the VMM writes it.
        variables: Option<OwnedFd>,
        order: Vec<BootDevice>,
        /// It has no serial console of its own and is to use one.
        serial: bool,
    },
}

/// An image as it was opened.
#[derive(Debug)]
pub(crate) struct OpenedDisk {
    pub(crate) image: OwnedFd,
    /// What a throw-away image is laid over.
    pub(crate) base: Option<OwnedFd>,
    /// How the image is open; never the default.
    pub(crate) cache: DiskCache,
}

/// A tap with all its queues.
#[derive(Debug)]
pub(crate) struct OpenedTap {
    /// At least one.
    pub(crate) queues: Vec<OwnedFd>,
    /// `/dev/vhost-net`, once for each queue, or not at all.
    pub(crate) vhost: Vec<OwnedFd>,
    pub(crate) mtu: u32,
}

/// Both ends of a guest's sockets.
#[derive(Debug)]
pub(crate) struct OpenedVsock {
    /// The guest's address.
    pub(crate) cid: u32,
    /// Listens for programs that want to reach the guest.
    pub(crate) listener: OwnedFd,
    /// Leads to whoever connects the guest's programs to the node's.
    pub(crate) broker: OwnedFd,
}

/// The operator's settings for every machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MachinePolicy {
    pub(crate) console_log_bytes: u64,
    pub(crate) memory_mapped_pci: bool,
    pub(crate) debug_ports: DebugPorts,
}

/// Why there is no machine.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AssembleError {
    /// A device has no place: the machine is full.
    #[error(
        "{what} {name} found no place on a PCI bus: the machine has more devices than room for them"
    )]
    NoPlace {
        /// Kind of the device.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// The clock's zone is not known.
    #[error(transparent)]
    Zone(#[from] ZoneError),
}

impl AssembleError {
    /// The reason of the condition.
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            Self::NoPlace { .. } => "TooManyDevices",
            Self::Zone(_) => "TimezoneNotFound",
        }
    }
}

/// What distinguishes this start of a guest from others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Launch<'a> {
    pub(crate) incarnation: u64,
    pub(crate) places: &'a PciPlaces,
    /// On which CPUs of the node it runs; `None`: on any.
    pub(crate) cpus: Option<&'a CpuGrant>,
    /// Drawn anew for each: a guest that is made of a snapshot learns from it that it may be one of
    /// several.
    pub(crate) generation_id: [u8; 16],
}

/// Descriptors in the order in which they go with the frame.
#[derive(Debug, Default)]
struct Descriptors<'a>(Vec<BorrowedFd<'a>>);

impl<'a> Descriptors<'a> {
    /// The index under which the configuration names a descriptor.
    fn add(&mut self, descriptor: &'a OwnedFd) -> u32 {
        self.0.push(descriptor.as_fd());
        u32::try_from(self.0.len() - 1).unwrap_or(u32::MAX)
    }
}

/// The configuration of one VMM, and its descriptors in the order that the configuration means.
pub(crate) fn assemble<'a>(
    vmi: &Vmi,
    launch: Launch<'_>,
    opened: &'a Opened,
    policy: MachinePolicy,
) -> Result<(v1::MachineConfig, Vec<BorrowedFd<'a>>), AssembleError> {
    let mut descriptors = Descriptors::default();
    let (kernel, firmware) = boot(&opened.boot, launch.places, policy, &mut descriptors)?;
    let machine = v1::MachineConfig {
        vmi_uid: vmi.uid.to_string(),
        vmi_namespace: vmi.namespace.to_string(),
        vmi_name: vmi.name.to_string(),
        incarnation: launch.incarnation,
        cpus: Some(places::pinned(cpus::cpus(vmi), launch.cpus)),
        clock: Some(cpus::clock(vmi)?),
        memory: Some(v1::Memory {
            size_bytes: vmi.memory_bytes,
            max_size_bytes: vmi.memory.max_bytes,
            hugepage_bytes: vmi.memory.hugepages.map_or(0, HugepageSize::bytes),
            transparent_hugepages: vmi.memory.hugepages.is_none(),
            numa_nodes: places::numa_nodes(vmi, launch.cpus),
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
        devices: devices::devices(vmi, launch.places, opened, &mut descriptors)?,
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
        vm_gen_id: launch.generation_id.to_vec(),
        ..v1::MachineConfig::default()
    };
    Ok((machine, descriptors.0))
}

/// What is booted: one of the two.
fn boot<'a>(
    opened: &'a OpenedBoot,
    places: &PciPlaces,
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
            let order = order.iter().map(|device| devices::place(device, places));
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

fn smbios(identity: &MachineIdentity) -> v1::Smbios {
    let MachineIdentity {
        uuid,
        serial,
        system,
        base_board: board,
        chassis,
        oem_strings,
    } = identity;
    v1::Smbios {
        system: Some(v1::SmbiosSystem {
            manufacturer: system.manufacturer.clone(),
            product: system.product.clone(),
            version: system.version.clone(),
            serial: serial.clone(),
            uuid: uuid.to_vec(),
            sku: system.sku.clone(),
            family: system.family.clone(),
        }),
        base_board: (*board != BaseBoard::default()).then(|| v1::SmbiosBaseBoard {
            manufacturer: board.manufacturer.clone(),
            product: board.product.clone(),
            version: board.version.clone(),
            serial: board.serial.clone(),
            asset: board.asset.clone(),
            location: board.location.clone(),
        }),
        chassis: Some(v1::SmbiosChassis {
            manufacturer: chassis.manufacturer.clone(),
            version: chassis.version.clone(),
            serial: chassis.serial.clone(),
            asset: chassis.asset.clone(),
            sku: chassis.sku.clone(),
        }),
        oem_strings: oem_strings.clone(),
    }
}

#[cfg(test)]
mod tests;
