//! From flags to a machine and its descriptors.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use agent_domain::{PciAddress, SingleDevice};
use agent_plan::{AddressDemand, PciAddresses, PciDemand};
use anyhow::Context;
use nix::libc::O_DIRECT;
use proto_vmm::v1;
use proto_vmm::v1::pci_device::Kind;
use tun_rs::{DeviceBuilder, Layer};

use crate::files::{Descriptors, open, read_only};
use crate::firmware;
use crate::flags::Run;
use crate::options::{CpusFlag, DiskFlag, NetFlag};

/// What a VMM is configured with.
pub struct Assembled {
    pub machine: v1::MachineConfig,
    /// In the order that the machine means.
    pub descriptors: Vec<OwnedFd>,
    /// Number of the descriptor of a snapshot.
    pub snapshot_fd: Option<u32>,
}

/// Opens all that the flags name.
pub fn assemble(flags: &Run) -> anyhow::Result<Assembled> {
    let mut descriptors = Descriptors::default();
    let kvm = open_device("/dev/kvm")?;
    let kernel = kernel(flags, &mut descriptors)?;
    let mut machine = v1::MachineConfig {
        vmi_uid: "vmm-front".to_owned(),
        vmi_namespace: "default".to_owned(),
        vmi_name: "vmm-front".to_owned(),
        incarnation: 1,
        cpus: Some(cpus(&flags.cpus)),
        memory: Some(v1::Memory {
            size_bytes: flags.memory.0,
            ..v1::Memory::default()
        }),
        kernel,
        kvm_fd: descriptors.add(kvm)?,
        // Who started it learns the end from an event.
        exit_record_fd: descriptors.add(tempfile::tempfile()?)?,
        devices: devices(flags, &mut descriptors)?,
        ..v1::MachineConfig::default()
    };
    machine.firmware = firmware::boot(&flags.firmware, &machine.devices, &mut descriptors)?;
    flags.tuning.apply(&mut machine);
    flags.peripherals.set_the_rest(&mut machine);
    if flags.no_reboot {
        machine.set_reboot_policy(v1::RebootPolicy::Terminate);
    }
    let snapshot_fd = flags
        .restore
        .as_deref()
        .map(|path| descriptors.add(read_only(path)?))
        .transpose()?;
    Ok(Assembled {
        machine,
        descriptors: descriptors.all(),
        snapshot_fd,
    })
}

fn kernel(flags: &Run, descriptors: &mut Descriptors) -> anyhow::Result<Option<v1::KernelBoot>> {
    let Some(kernel) = &flags.kernel else {
        return Ok(None);
    };
    Ok(Some(v1::KernelBoot {
        kernel_fd: descriptors.add(read_only(kernel)?)?,
        initrd_fd: flags
            .initrd
            .as_deref()
            .map(|path| descriptors.add(read_only(path)?))
            .transpose()?,
        cmdline: flags.cmdline.clone(),
        entry: flags.entry.0.into(),
        memory_mapped_pci: flags.memory_mapped_pci,
    }))
}

fn cpus(flag: &CpusFlag) -> v1::Cpus {
    v1::Cpus {
        count: flag.sockets * flag.cores * flag.threads,
        sockets: flag.sockets,
        cores: flag.cores,
        threads: flag.threads,
        model: flag.model.clone(),
        ..v1::Cpus::default()
    }
}

/// All functions, at the addresses that an agent would give them.
fn devices(flags: &Run, descriptors: &mut Descriptors) -> anyhow::Result<Vec<v1::PciDevice>> {
    let singles = flags.peripherals.messages(descriptors)?;
    let addresses = addresses(flags, singles.iter().map(|(single, _)| *single));
    let mut devices: Vec<v1::PciDevice> = addresses.root_ports.iter().map(root_port).collect();
    for (index, flag) in flags.disk.iter().enumerate() {
        let mut blk = flag.blk.clone();
        blk.disk_fd = descriptors.add(open_disk(flag)?)?;
        if let Some(base) = &flag.base {
            blk.base_fd = Some(descriptors.add(read_only(base)?)?);
        }
        let address = find(addresses.disks.get(&index.to_string()), "a disk")?;
        let mut device = v1::PciDevice::at(address.bus, address.device, Kind::Blk(blk));
        device.io_thread.clone_from(&flag.thread);
        devices.push(device);
    }
    for (index, flag) in flags.net.iter().enumerate() {
        let last = u8::try_from(index + 1)?;
        let mut net = v1::VirtioNet {
            tap_fd: descriptors.add(open_tap(flag)?)?,
            mac: flag.mac.unwrap_or([2, 0, 0, 0, 0, last]).to_vec(),
            mtu: flag.mtu,
            shared_vector: true,
            ..v1::VirtioNet::default()
        };
        if flag.vhost {
            let vhost = open_device("/dev/vhost-net")?;
            net.vhost_fds.push(descriptors.add(vhost)?);
        }
        let address = find(
            addresses.interfaces.get(&index.to_string()),
            "a network device",
        )?;
        devices.push(v1::PciDevice::at(
            address.bus,
            address.device,
            Kind::Net(net),
        ));
    }
    for (single, message) in singles {
        let address = find(addresses.single(single).as_ref(), single.name())?;
        devices.push(v1::PciDevice::at(address.bus, address.device, message));
    }
    Ok(devices)
}

fn addresses(flags: &Run, singles: impl Iterator<Item = SingleDevice>) -> PciAddresses {
    let named = |name: String| AddressDemand {
        name,
        address: None,
    };
    let numbered = |count: usize| (0..count).map(|index| named(index.to_string())).collect();
    let demand = PciDemand {
        disks: numbered(flags.disk.len()),
        interfaces: numbered(flags.net.len()),
        singles: singles
            .map(|single| named(single.name().to_owned()))
            .collect(),
        hot_plug_memory_bytes: flags.spare_ports.then_some(flags.memory.0),
    };
    let mut addresses = PciAddresses::default();
    addresses.complete(&demand);
    addresses
}

fn find(address: Option<&PciAddress>, what: &str) -> anyhow::Result<PciAddress> {
    address
        .copied()
        .with_context(|| format!("the machine has no room for {what}"))
}

fn root_port((bus, device): (&u8, &u8)) -> v1::PciDevice {
    let address = PciAddress {
        bus: 0,
        device: *device,
    };
    let port = v1::RootPort {
        secondary_bus: u32::from(*bus),
    };
    v1::PciDevice::at(address.bus, address.device, Kind::RootPort(port))
}

fn open_device(path: &str) -> anyhow::Result<File> {
    open(OpenOptions::new().read(true).write(true), Path::new(path))
}

fn open_disk(flag: &DiskFlag) -> anyhow::Result<File> {
    let special = match flag.blk.cache() {
        v1::DiskCache::Unspecified | v1::DiskCache::Writethrough => 0,
        v1::DiskCache::None => O_DIRECT,
    };
    let mut options = OpenOptions::new();
    options.read(true).write(!flag.blk.read_only);
    open(options.custom_flags(special), &flag.path)
}

fn open_tap(flag: &NetFlag) -> anyhow::Result<OwnedFd> {
    let tap = DeviceBuilder::new()
        .name(&flag.tap)
        .layer(Layer::L2)
        .packet_information(false)
        .offload(true)
        .inherit_enable_state()
        .build_sync()
        .with_context(|| format!("the tap {}", flag.tap))?;
    Ok(tap.as_fd().try_clone_to_owned()?)
}
