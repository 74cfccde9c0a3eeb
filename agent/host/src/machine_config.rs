//! The machine of a VMI, fully resolved: the VMM chooses nothing.
//!
//! A function's PCI slot follows from what it is and its place in the spec, so that adding a disk
//! does not rename the guest's network interfaces:
//!
//! | slot | what |
//! | --- | --- |
//! | 0 | host bridge |
//! | 1 | virtio-rng |
//! | 2 to 9 | interfaces, in the order of the spec |
//! | 10 to 30 | disks, in the order of the spec |
//! | 31 | LPC bridge |
//!
//! Only a guest with more interfaces than eight or more disks than 21 has the border between the
//! two elsewhere.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use agent_domain::{RebootPolicy, Vmi};
use proto_vmm::v1;

use crate::config::DebugPorts;

const RNG_SLOT: u32 = 1;
const FIRST_INTERFACE_SLOT: u32 = 2;
const FIRST_DISK_SLOT: u32 = 10;
const LAST_SLOT: u32 = 30;

/// What the host has opened for one VMM.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) kvm: OwnedFd,
    pub(crate) exit_record: OwnedFd,
    pub(crate) console_log: OwnedFd,
    pub(crate) kernel: OwnedFd,
    pub(crate) initrd: Option<OwnedFd>,
    /// In the order of the spec.
    pub(crate) disks: Vec<OwnedFd>,
    /// In the order of the spec, each with its MTU.
    pub(crate) taps: Vec<(OwnedFd, u32)>,
}

/// What the operator decides about every machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MachinePolicy {
    pub(crate) console_log_bytes: u64,
    pub(crate) debug_ports: DebugPorts,
}

/// A VMI has more devices than there are slots.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{interfaces} interfaces and {disks} disks are more than the {} that a machine has slots for",
    LAST_SLOT - FIRST_INTERFACE_SLOT + 1
)]
pub(crate) struct TooManyDevices {
    interfaces: usize,
    disks: usize,
}

/// The slot of the first disk.
fn first_disk_slot(interfaces: usize, disks: usize) -> Result<u32, TooManyDevices> {
    let too_many = || TooManyDevices { interfaces, disks };
    let after_interfaces = u32::try_from(interfaces)
        .ok()
        .and_then(|count| count.checked_add(FIRST_INTERFACE_SLOT))
        .ok_or_else(too_many)?;
    let latest = u32::try_from(disks)
        .ok()
        .and_then(|count| (LAST_SLOT + 1).checked_sub(count))
        .ok_or_else(too_many)?;
    if after_interfaces > latest {
        return Err(too_many());
    }
    Ok(FIRST_DISK_SLOT.clamp(after_interfaces, latest))
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
    incarnation: u64,
    opened: &'a Opened,
    policy: MachinePolicy,
) -> Result<(v1::MachineConfig, Vec<BorrowedFd<'a>>), TooManyDevices> {
    let mut descriptors = Descriptors::default();
    let cpus = v1::Cpus {
        count: vmi.cpus.count(),
        sockets: vmi.cpus.sockets,
        cores: vmi.cpus.cores,
        threads: vmi.cpus.threads,
        ..v1::Cpus::default()
    };
    let machine = v1::MachineConfig {
        vmi_uid: vmi.uid.to_string(),
        vmi_namespace: vmi.namespace.to_string(),
        vmi_name: vmi.name.to_string(),
        incarnation,
        cpus: Some(cpus),
        memory: Some(v1::Memory {
            size_bytes: vmi.memory_bytes,
        }),
        kvm_fd: descriptors.add(&opened.kvm),
        exit_record_fd: descriptors.add(&opened.exit_record),
        serial: Some(v1::Serial {
            log_fd: Some(descriptors.add(&opened.console_log)),
            log_max_bytes: policy.console_log_bytes,
        }),
        kernel: Some(v1::KernelBoot {
            kernel_fd: descriptors.add(&opened.kernel),
            initrd_fd: opened.initrd.as_ref().map(|fd| descriptors.add(fd)),
            cmdline: vmi.kernel.cmdline.clone(),
            entry: v1::KernelEntry::Unspecified.into(),
        }),
        devices: devices(vmi, opened, &mut descriptors)?,
        reboot_policy: match vmi.reboot_policy {
            RebootPolicy::Reboot => v1::RebootPolicy::Unspecified.into(),
            RebootPolicy::Terminate => v1::RebootPolicy::Terminate.into(),
        },
        debug: Some(v1::Debug {
            boot_timestamp_port: policy.debug_ports.boot_timestamp,
            debug_exit_port: policy.debug_ports.exit,
        }),
        ..v1::MachineConfig::default()
    };
    Ok((machine, descriptors.0))
}

fn devices<'a>(
    vmi: &Vmi,
    opened: &'a Opened,
    descriptors: &mut Descriptors<'a>,
) -> Result<Vec<v1::PciDevice>, TooManyDevices> {
    use v1::pci_device::Kind;

    let first_disk = first_disk_slot(vmi.interfaces.len(), vmi.disks.len())?;
    let mut devices = Vec::new();
    if vmi.rng {
        devices.push(at_slot(RNG_SLOT, Kind::Rng(v1::VirtioRng {})));
    }
    let interfaces = vmi.interfaces.iter().zip(&opened.taps);
    for (slot, (interface, (tap, mtu))) in (FIRST_INTERFACE_SLOT..).zip(interfaces) {
        let net = v1::VirtioNet {
            tap_fd: descriptors.add(tap),
            mac: interface.mac.octets().to_vec(),
            mtu: *mtu,
        };
        devices.push(at_slot(slot, Kind::Net(net)));
    }
    for (slot, (disk, file)) in (first_disk..).zip(vmi.disks.iter().zip(&opened.disks)) {
        let blk = v1::VirtioBlk {
            disk_fd: descriptors.add(file),
            read_only: disk.read_only,
            serial: disk.serial.clone(),
            ..v1::VirtioBlk::default()
        };
        devices.push(at_slot(slot, Kind::Blk(blk)));
    }
    Ok(devices)
}

fn at_slot(slot: u32, kind: v1::pci_device::Kind) -> v1::PciDevice {
    v1::PciDevice {
        address: Some(v1::PciAddress {
            bus: 0,
            device: slot,
            function: 0,
        }),
        kind: Some(kind),
        ..v1::PciDevice::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_disk_stays_where_it_is_when_interfaces_come_and_go() {
        for interfaces in 0..=8 {
            for disks in 0..=21 {
                assert_eq!(first_disk_slot(interfaces, disks), Ok(10));
            }
        }
    }

    #[test]
    fn all_slots_can_be_used_and_no_more() {
        assert_eq!(first_disk_slot(0, 29), Ok(2));
        assert_eq!(first_disk_slot(29, 0), Ok(31));
        assert_eq!(first_disk_slot(20, 9), Ok(22));
        assert!(first_disk_slot(20, 10).is_err());
        assert!(first_disk_slot(usize::MAX, 1).is_err());
    }
}
