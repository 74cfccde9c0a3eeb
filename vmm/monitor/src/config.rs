//! From the wire to a machine: everything is checked here, with the path of what is wrong.

mod balloon;
mod clock;
mod console;
mod cpus;
mod disk;
pub mod error;
mod firmware;
#[cfg(test)]
mod hostile;
mod life;
mod memory;
mod net;
mod placement;
mod places;
mod smbios;
#[cfg(test)]
mod tests;
mod vsock;

use std::fs::File;
use std::sync::Arc;

use proto_vmm::v1;
use vmm_machine::{
    BootSource, DebugIoPorts, DeviceConfig, FixedDevices, KernelConfig, KernelEntry,
    MAX_CMDLINE_BYTES, MachineConfig, PciAddress, RebootPolicy, SerialConfig,
};

pub use self::console::ConsoleParts;
pub use self::disk::limits as disk_limits;
use self::error::{FieldError, unknown};
pub use self::net::limits as net_limits;
pub use self::placement::field as placement_field;
use self::places::MAX_DEVICES;
pub use self::vsock::control as vsock_control;
use crate::descriptors::{Access, Descriptors, Kind};

const MIN_LOG_BYTES: u64 = 64 << 10;
const MAX_NAME_BYTES: usize = 512;

/// A machine that can be built, and the files of its process.
pub struct CheckedConfig {
    /// The machine, with all its descriptors.
    pub machine: MachineConfig,
    /// Takes the exit record.
    pub exit_record: File,
    /// Log of the console and its limit in bytes.
    pub console_log: Option<(File, u64)>,
    /// The virtio console, if there is one among the machine's devices.
    pub console: Option<ConsoleParts>,
}

/// Checks `wire` and takes its descriptors, for a machine whose COM1 is `serial`.
pub fn check(
    wire: &v1::MachineConfig,
    mut descriptors: Descriptors,
    serial: SerialConfig,
) -> Result<CheckedConfig, FieldError> {
    check_names(wire)?;
    let cpus = cpus::cpus(wire.cpus.as_ref())?;
    let clock = clock::clock(wire.clock.unwrap_or_default())?;
    let memory = memory::memory(wire.memory.as_ref())?;
    let numa_nodes = memory::nodes(wire.memory.as_ref(), &memory, cpus.topology)?;
    let dev_kvm = descriptors.take(
        "kvm_fd",
        wire.kvm_fd,
        Kind::CharacterDevice,
        Access::ReadWrite,
    )?;
    let exit_record =
        descriptors.take_file("exit_record_fd", wire.exit_record_fd, Access::Write)?;
    let boot = boot(wire, &mut descriptors)?;
    let console_log = console_log(wire.serial.as_ref(), &mut descriptors)?;
    let console = console::parts(&wire.devices, &mut descriptors)?;
    let devices = devices(&wire.devices, console.as_ref(), &mut descriptors)?;
    let io_threads = disk::io_threads(&wire.devices, &devices)?;
    let placement = placement::placement(wire.cpus.as_ref(), cpus.topology, &io_threads)?;
    let reboot_policy = match v1::RebootPolicy::try_from(wire.reboot_policy) {
        Ok(v1::RebootPolicy::Unspecified) => RebootPolicy::Restart,
        Ok(v1::RebootPolicy::Terminate) => RebootPolicy::End,
        Err(_) => return Err(unknown("reboot_policy", wire.reboot_policy)),
    };
    if let Some(index) = descriptors.first_unused() {
        return Err(FieldError::new(
            "descriptors",
            format!("of the frame have one, number {index}, that no field names"),
        ));
    }
    let debug = wire.debug.unwrap_or_default();
    Ok(CheckedConfig {
        machine: MachineConfig {
            dev_kvm,
            cpus,
            clock,
            memory,
            numa_nodes,
            placement,
            boot,
            reboot_policy,
            serial,
            devices,
            io_threads,
            fixed: FixedDevices {
                isa_pvpanic: wire.isa_pvpanic,
            },
            debug: DebugIoPorts {
                timestamp: debug.boot_timestamp_port,
                exit: debug.debug_exit_port,
            },
            smbios: wire.smbios.as_ref().map(smbios::smbios).transpose()?,
            life: life::life(wire)?,
        },
        exit_record,
        console_log,
        console,
    })
}

fn check_names(wire: &v1::MachineConfig) -> Result<(), FieldError> {
    let names = [
        ("vmi_uid", &wire.vmi_uid),
        ("vmi_namespace", &wire.vmi_namespace),
        ("vmi_name", &wire.vmi_name),
    ];
    for (field, name) in names {
        if name.len() > MAX_NAME_BYTES {
            let rule = format!("has {} bytes, more than {MAX_NAME_BYTES}", name.len());
            return Err(FieldError::new(field, rule));
        }
    }
    if wire.vmi_uid.is_empty() {
        return Err(FieldError::new("vmi_uid", "is empty"));
    }
    Ok(())
}

fn boot(wire: &v1::MachineConfig, descriptors: &mut Descriptors) -> Result<BootSource, FieldError> {
    match (&wire.kernel, &wire.firmware) {
        (Some(wire), None) => kernel(wire, descriptors).map(BootSource::Kernel),
        (None, Some(wire)) => firmware::firmware(wire, descriptors).map(BootSource::Firmware),
        (None, None) => Err(FieldError::new("kernel", "is missing, and so is firmware")),
        (Some(_), Some(_)) => Err(FieldError::new("firmware", "is there beside kernel")),
    }
}

fn kernel(
    kernel: &v1::KernelBoot,
    descriptors: &mut Descriptors,
) -> Result<KernelConfig, FieldError> {
    let cmdline = kernel.cmdline.as_bytes();
    if cmdline.len() > MAX_CMDLINE_BYTES || cmdline.contains(&0) {
        let rule = format!(
            "has {} bytes; at most {MAX_CMDLINE_BYTES} without NUL are allowed",
            cmdline.len()
        );
        return Err(FieldError::new("kernel.cmdline", rule));
    }
    let entry = match v1::KernelEntry::try_from(kernel.entry) {
        Ok(v1::KernelEntry::Unspecified) => KernelEntry::Default,
        Ok(v1::KernelEntry::Pvh) => KernelEntry::Pvh,
        Ok(v1::KernelEntry::Linux64) => KernelEntry::Linux64,
        Err(_) => return Err(unknown("kernel.entry", kernel.entry)),
    };
    let file = descriptors.take_file("kernel.kernel_fd", kernel.kernel_fd, Access::Read)?;
    let initrd = kernel
        .initrd_fd
        .map(|index| descriptors.take_file("kernel.initrd_fd", index, Access::Read))
        .transpose()?;
    Ok(KernelConfig {
        kernel: file,
        initrd,
        cmdline: cmdline.to_vec(),
        entry,
        maps_pci: kernel.memory_mapped_pci,
    })
}

fn console_log(
    serial: Option<&v1::Serial>,
    descriptors: &mut Descriptors,
) -> Result<Option<(File, u64)>, FieldError> {
    let Some((index, serial)) = serial.and_then(|serial| Some((serial.log_fd?, serial))) else {
        return Ok(None);
    };
    if serial.log_max_bytes < MIN_LOG_BYTES {
        let rule = format!("is {}; the least is {MIN_LOG_BYTES}", serial.log_max_bytes);
        return Err(FieldError::new("serial.log_max_bytes", rule));
    }
    let file = descriptors.take_file("serial.log_fd", index, Access::ReadWrite)?;
    Ok(Some((file, serial.log_max_bytes)))
}

fn devices(
    wire: &[v1::PciDevice],
    console: Option<&ConsoleParts>,
    descriptors: &mut Descriptors,
) -> Result<Vec<(PciAddress, DeviceConfig)>, FieldError> {
    if wire.len() > MAX_DEVICES {
        let rule = format!("has {} entries, more than {MAX_DEVICES}", wire.len());
        return Err(FieldError::new("devices", rule));
    }
    let mut devices: Vec<(PciAddress, DeviceConfig)> = Vec::with_capacity(wire.len());
    for (index, device) in wire.iter().enumerate() {
        let path = format!("devices[{index}]");
        let address = places::address(&path, device.address.as_ref())?;
        let config = match (&device.kind, console) {
            (Some(v1::pci_device::Kind::Console(_)), Some(console)) => {
                DeviceConfig::Console(Arc::clone(&console.host))
            }
            (wire, _) => kind(&path, wire.as_ref(), descriptors)?,
        };
        devices.push((address, config));
    }
    places::check(&devices)?;
    vsock::check(&devices)?;
    net::check_acpi_indexes(&devices)?;
    Ok(devices)
}

/// Reads where the disk of a request is.
pub fn disk_address(wire: Option<&v1::PciAddress>) -> Result<PciAddress, FieldError> {
    places::address("disk", wire)
}

/// Reads where the NIC of a request is.
pub fn nic_address(wire: Option<&v1::PciAddress>) -> Result<PciAddress, FieldError> {
    places::address("card", wire)
}

fn kind(
    path: &str,
    wire: Option<&v1::pci_device::Kind>,
    descriptors: &mut Descriptors,
) -> Result<DeviceConfig, FieldError> {
    use v1::pci_device::Kind as Wire;
    match wire {
        None => Err(FieldError::new(
            path,
            "is of a kind that this VMM does not know",
        )),
        // All consoles were read before.
        Some(Wire::Console(_)) => Err(FieldError::new(path, "is a console without its ports")),
        Some(Wire::Blk(blk)) => disk::disk(path, blk, descriptors),
        Some(Wire::Net(net)) => net::nic(path, net, descriptors),
        Some(Wire::Rng(v1::VirtioRng {})) => Ok(DeviceConfig::Rng),
        Some(Wire::Balloon(balloon)) => balloon::balloon(path, *balloon),
        Some(Wire::Vsock(vsock)) => vsock::vsock(path, vsock, descriptors),
        Some(Wire::RootPort(port)) => places::root_port(path, port),
        Some(Wire::I6300esb(watchdog)) => life::watchdog(path, *watchdog),
        Some(Wire::Pvpanic(v1::Pvpanic {})) => Ok(DeviceConfig::Pvpanic),
    }
}
