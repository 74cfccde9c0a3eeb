//! PCI functions of a VMI, for its VMM.

use agent_domain::{
    BootDevice, Disk, DiskBlocks, DiskCache, DiskErrors, Interface, PciAddress, SingleDevice, Vmi,
    WatchdogAction,
};
use agent_plan::PciAddresses;
use proto_vmm::v1::{self, pci_device::Kind};

use super::error::AssembleError;
use super::opened::{Descriptors, Opened, OpenedDisk, OpenedTap, OpenedVsock};

/// By which name qemu-guest-agent looks for its channel.
const GUEST_AGENT_PORT: &str = "org.qemu.guest_agent.0";

/// All functions, at their addresses.
pub(super) fn devices<'a>(
    vmi: &Vmi,
    addresses: &PciAddresses,
    opened: &'a Opened,
    descriptors: &mut Descriptors<'a>,
) -> Result<Vec<v1::PciDevice>, AssembleError> {
    let mut devices: Vec<_> = addresses.root_ports.iter().map(root_port).collect();
    for &device in &vmi.single_devices {
        let address = addresses.single(device);
        let address = find(address.as_ref(), "the device", device.name())?;
        let kind = single(device, vmi, opened, descriptors);
        let kind = kind.ok_or_else(|| not_opened("the device", device.name()))?;
        devices.push(v1::PciDevice::at(address.bus, address.device, kind));
    }
    for (interface, tap) in vmi.interfaces.iter().zip(&opened.taps) {
        let name = interface.name.as_str();
        let address = find(addresses.interfaces.get(name), "interface", name)?;
        let nic = nic(interface, tap, descriptors);
        let nic = nic.ok_or_else(|| not_opened("interface", name))?;
        devices.push(v1::PciDevice::at(address.bus, address.device, nic));
    }
    for (index, (disk, opened)) in vmi.disks.iter().zip(&opened.disks).enumerate() {
        let name = disk.name.as_str();
        let address = find(addresses.disks.get(name), "disk", name)?;
        let blk = blk(disk, opened, vmi.disk_queues, descriptors);
        let mut device = v1::PciDevice::at(address.bus, address.device, Kind::Blk(blk));
        if disk.options.dedicated_thread {
            device.io_thread = format!("disk{index}");
        }
        devices.push(device);
    }
    Ok(devices)
}

fn root_port((bus, device): (&u8, &u8)) -> v1::PciDevice {
    let port = v1::RootPort {
        secondary_bus: u32::from(*bus),
    };
    let address = PciAddress {
        bus: 0,
        device: *device,
    };
    v1::PciDevice::at(address.bus, address.device, Kind::RootPort(port))
}

fn guest_agent_console<'a>(opened: &'a Opened, descriptors: &mut Descriptors<'a>) -> Kind {
    let ports = vec![v1::VirtioConsolePort {
        name: GUEST_AGENT_PORT.to_owned(),
        listen_fd: Some(descriptors.add(&opened.guest_agent)),
        ..v1::VirtioConsolePort::default()
    }];
    Kind::Console(v1::VirtioConsole {
        ports,
        ..v1::VirtioConsole::default()
    })
}

fn socket_device<'a>(vsock: &'a OpenedVsock, descriptors: &mut Descriptors<'a>) -> Kind {
    Kind::Vsock(v1::VirtioVsock {
        guest_cid: vsock.cid,
        listen_fd: Some(descriptors.add(&vsock.listener)),
        broker_fd: Some(descriptors.add(&vsock.broker)),
    })
}

/// A NIC; nothing when its tap has no queue.
fn nic<'a>(
    interface: &Interface,
    tap: &'a OpenedTap,
    descriptors: &mut Descriptors<'a>,
) -> Option<Kind> {
    let mut queues = tap.queues.iter().map(|queue| descriptors.add(queue));
    let tap_fd = queues.next()?;
    let more_tap_fds: Vec<u32> = queues.collect();
    Some(Kind::Net(v1::VirtioNet {
        tap_fd,
        shared_vector: more_tap_fds.is_empty(),
        more_tap_fds,
        mac: interface.mac.octets().to_vec(),
        mtu: tap.mtu,
        link_down: interface.link_down,
        acpi_index: u32::from(interface.acpi_index.unwrap_or(0)),
        ..v1::VirtioNet::default()
    }))
}

fn not_opened(what: &'static str, name: &str) -> AssembleError {
    AssembleError::NotOpened {
        what,
        name: name.to_owned(),
    }
}

fn blk<'a>(
    disk: &Disk,
    opened: &'a OpenedDisk,
    queues: u32,
    descriptors: &mut Descriptors<'a>,
) -> v1::VirtioBlk {
    let options = disk.options;
    // The VMM's word for "as the image wants" is 0.
    let blocks = options.blocks.unwrap_or(DiskBlocks {
        logical: 0,
        physical: 0,
        discard_granularity: None,
    });
    let errors = match options.errors {
        // The VMM reports unless the message says otherwise. What a VMI without a policy has is not this: the agent's default is
        // `Stop`, as KubeVirt's.
        DiskErrors::Report => v1::DiskErrorPolicy::Unspecified,
        DiskErrors::Ignore => v1::DiskErrorPolicy::Ignore,
        DiskErrors::Stop => v1::DiskErrorPolicy::Stop,
        DiskErrors::StopOnNoSpace => v1::DiskErrorPolicy::Enospace,
    };
    let mut blk = v1::VirtioBlk {
        disk_fd: descriptors.add(&opened.image),
        base_fd: opened.base.as_ref().map(|base| descriptors.add(base)),
        read_only: disk.read_only,
        serial: disk.serial.clone(),
        queues,
        logical_block_bytes: blocks.logical,
        physical_block_bytes: blocks.physical,
        discard: !disk.read_only && blocks.discard_granularity != Some(0),
        discard_granularity_bytes: blocks.discard_granularity.unwrap_or(0),
        ..v1::VirtioBlk::default()
    };
    blk.set_cache(match opened.cache {
        DiskCache::None => v1::DiskCache::None,
        DiskCache::WriteThrough => v1::DiskCache::Writethrough,
        DiskCache::Default | DiskCache::WriteBack => v1::DiskCache::Unspecified,
    });
    if options.waits {
        blk.set_io(v1::DiskIo::Threads);
    }
    blk.set_read_errors(errors);
    blk.set_write_errors(errors);
    blk
}

/// A device that there is one of; `None` when the VMI has none or what it needs was not opened.
fn single<'a>(
    device: SingleDevice,
    vmi: &Vmi,
    opened: &'a Opened,
    descriptors: &mut Descriptors<'a>,
) -> Option<Kind> {
    Some(match device {
        SingleDevice::Rng => Kind::Rng(v1::VirtioRng {}),
        SingleDevice::Console => guest_agent_console(opened, descriptors),
        SingleDevice::Watchdog => watchdog(vmi.watchdog?),
        SingleDevice::Pvpanic => Kind::Pvpanic(v1::Pvpanic {}),
        SingleDevice::Balloon => Kind::Balloon(v1::VirtioBalloon {
            deflate_on_oom: true,
            // Huge pages were set aside for the guest; giving them back page by page breaks them up.
            free_page_reporting: vmi.memory.hugepages.is_none(),
            ..v1::VirtioBalloon::default()
        }),
        SingleDevice::Vsock => socket_device(opened.vsock.as_ref()?, descriptors),
    })
}

fn watchdog(action: WatchdogAction) -> Kind {
    let action = match action {
        WatchdogAction::Reset => v1::WatchdogAction::Unspecified,
        WatchdogAction::Shutdown => v1::WatchdogAction::Shutdown,
        WatchdogAction::PowerOff => v1::WatchdogAction::Poweroff,
    };
    Kind::I6300esb(v1::I6300Esb {
        action: action.into(),
    })
}

/// Where something is that is booted from.
pub(super) fn address(
    device: &BootDevice,
    addresses: &PciAddresses,
) -> Result<v1::PciAddress, AssembleError> {
    let address = match device {
        BootDevice::Disk(name) => find(addresses.disks.get(name.as_str()), "disk", name.as_str()),
        BootDevice::Interface(name) => find(
            addresses.interfaces.get(name.as_str()),
            "interface",
            name.as_str(),
        ),
    }?;
    Ok(v1::PciAddress {
        bus: u32::from(address.bus),
        device: u32::from(address.device),
        function: 0,
    })
}

fn find(
    address: Option<&PciAddress>,
    what: &'static str,
    name: &str,
) -> Result<PciAddress, AssembleError> {
    address.copied().ok_or_else(|| AssembleError::NoPlace {
        what,
        name: name.to_owned(),
    })
}
