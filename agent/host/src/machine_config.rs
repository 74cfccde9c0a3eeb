//! The machine of a VMI, fully resolved: the VMM chooses nothing.
//!
//! Where its PCI functions sit is recorded since its first launch (`agent_plan::PciPlaces`).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use agent_domain::{HugepageSize, MachineIdentity, RebootPolicy, Vmi, WatchdogAction};
use agent_plan::{PciPlace, PciPlaces};
use proto_vmm::v1::{self, pci_device::Kind};

use crate::config::DebugPorts;

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
    /// Listens for those who want to talk to the guest's agent.
    pub(crate) guest_agent: OwnedFd,
}

/// What the operator decides about every machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MachinePolicy {
    pub(crate) console_log_bytes: u64,
    pub(crate) debug_ports: DebugPorts,
}

/// A device has no place: the machine is full.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} {name} found no place on a PCI bus: the machine has more devices than room for them"
)]
pub(crate) struct NoPlace {
    what: &'static str,
    name: String,
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
    places: &PciPlaces,
    opened: &'a Opened,
    policy: MachinePolicy,
) -> Result<(v1::MachineConfig, Vec<BorrowedFd<'a>>), NoPlace> {
    let mut descriptors = Descriptors::default();
    let cpus = v1::Cpus {
        count: vmi.cpus.count(),
        sockets: vmi.cpus.sockets,
        cores: vmi.cpus.cores,
        threads: vmi.cpus.threads,
        hyperv: vmi.panic_devices.hyperv.then(|| v1::Hyperv {
            crash: true,
            ..v1::Hyperv::default()
        }),
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
            max_size_bytes: vmi.memory.max_bytes,
            hugepage_bytes: vmi.memory.hugepages.map_or(0, HugepageSize::bytes),
            ..v1::Memory::default()
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
        devices: devices(vmi, places, opened, &mut descriptors)?,
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
        ..v1::MachineConfig::default()
    };
    Ok((machine, descriptors.0))
}

/// By which name qemu-guest-agent looks for its channel.
const GUEST_AGENT_PORT: &str = "org.qemu.guest_agent.0";

/// What KubeVirt tells by default of every guest's machine.
const MANUFACTURER: &str = "KubeVirt";
const PRODUCT: &str = "None";
const FAMILY: &str = "KubeVirt";

fn smbios(identity: &MachineIdentity) -> v1::Smbios {
    let MachineIdentity {
        uuid,
        serial,
        chassis,
    } = identity;
    let manufacturer = if chassis.manufacturer.is_empty() {
        MANUFACTURER
    } else {
        &chassis.manufacturer
    };
    v1::Smbios {
        system: Some(v1::SmbiosSystem {
            manufacturer: MANUFACTURER.to_owned(),
            product: PRODUCT.to_owned(),
            family: FAMILY.to_owned(),
            serial: serial.clone(),
            uuid: uuid.to_vec(),
            ..v1::SmbiosSystem::default()
        }),
        base_board: None,
        chassis: Some(v1::SmbiosChassis {
            manufacturer: manufacturer.to_owned(),
            version: chassis.version.clone(),
            serial: chassis.serial.clone(),
            asset: chassis.asset.clone(),
            sku: chassis.sku.clone(),
        }),
        oem_strings: Vec::new(),
    }
}

fn devices<'a>(
    vmi: &Vmi,
    places: &PciPlaces,
    opened: &'a Opened,
    descriptors: &mut Descriptors<'a>,
) -> Result<Vec<v1::PciDevice>, NoPlace> {
    let mut devices: Vec<_> = places
        .root_ports
        .iter()
        .map(|(bus, device)| {
            let port = v1::RootPort {
                secondary_bus: u32::from(*bus),
            };
            let place = PciPlace {
                bus: 0,
                device: *device,
            };
            at(place, Kind::RootPort(port))
        })
        .collect();
    for (name, kind) in singles(vmi) {
        let place = find(places.singles.get(name), "the device", name)?;
        devices.push(at(place, kind));
    }
    let console = PciPlaces::CONSOLE;
    let place = find(places.singles.get(console), "the device", console)?;
    let ports = vec![v1::VirtioConsolePort {
        name: GUEST_AGENT_PORT.to_owned(),
        listen_fd: Some(descriptors.add(&opened.guest_agent)),
        ..v1::VirtioConsolePort::default()
    }];
    let console = v1::VirtioConsole {
        ports,
        ..v1::VirtioConsole::default()
    };
    devices.push(at(place, Kind::Console(console)));
    for (interface, (tap, mtu)) in vmi.interfaces.iter().zip(&opened.taps) {
        let name = interface.name.as_str();
        let place = find(places.interfaces.get(name), "interface", name)?;
        let net = v1::VirtioNet {
            tap_fd: descriptors.add(tap),
            mac: interface.mac.octets().to_vec(),
            mtu: *mtu,
            ..v1::VirtioNet::default()
        };
        devices.push(at(place, Kind::Net(net)));
    }
    for (disk, file) in vmi.disks.iter().zip(&opened.disks) {
        let name = disk.name.as_str();
        let place = find(places.disks.get(name), "disk", name)?;
        let blk = v1::VirtioBlk {
            disk_fd: descriptors.add(file),
            read_only: disk.read_only,
            serial: disk.serial.clone(),
            ..v1::VirtioBlk::default()
        };
        devices.push(at(place, Kind::Blk(blk)));
    }
    Ok(devices)
}

/// What there is one of, by the name of its place.
fn singles(vmi: &Vmi) -> impl Iterator<Item = (&'static str, Kind)> {
    let watchdog = vmi.watchdog.map(|action| {
        let action = match action {
            WatchdogAction::Reset => v1::WatchdogAction::Unspecified,
            WatchdogAction::Shutdown => v1::WatchdogAction::Shutdown,
            WatchdogAction::PowerOff => v1::WatchdogAction::Poweroff,
        };
        Kind::I6300esb(v1::I6300Esb {
            action: action.into(),
        })
    });
    let rng = vmi.rng.then_some(Kind::Rng(v1::VirtioRng {}));
    let pvpanic = vmi
        .panic_devices
        .pci
        .then_some(Kind::Pvpanic(v1::Pvpanic {}));
    [
        (PciPlaces::RNG, rng),
        (PciPlaces::WATCHDOG, watchdog),
        (PciPlaces::PVPANIC, pvpanic),
    ]
    .into_iter()
    .filter_map(|(name, kind)| Some((name, kind?)))
}

fn find(place: Option<&PciPlace>, what: &'static str, name: &str) -> Result<PciPlace, NoPlace> {
    place.copied().ok_or_else(|| NoPlace {
        what,
        name: name.to_owned(),
    })
}

fn at(place: PciPlace, kind: Kind) -> v1::PciDevice {
    v1::PciDevice {
        address: Some(v1::PciAddress {
            bus: u32::from(place.bus),
            device: u32::from(place.device),
            function: 0,
        }),
        kind: Some(kind),
        ..v1::PciDevice::default()
    }
}
