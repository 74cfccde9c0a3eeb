//! From configurations to PCI functions.

pub(crate) mod error;
pub(crate) mod handles;
mod life;

use std::sync::{Arc, Mutex};

use vmm_devices::pci::root_port::RootPort;
use vmm_devices::virtio::blk::BlkDevice;
use vmm_devices::virtio::console::ConsoleDevice;
use vmm_devices::virtio::rng::RngDevice;
use vmm_devices::virtio::vsock::VsockDevice;
use vmm_devices::virtio::{VirtioDevice, VirtioPciFunction};
use vmm_devices::{GuestRam, MsiBinding, Payloads, PciFunction};
use vmm_kvm::{GsiPool, InterruptRouter, Vm};

use crate::acpi::{DescribedPci, NamedFunction};
use crate::balloon;
use crate::change_limiter::ChangeLimiter;
use crate::config::DeviceConfig;
use crate::functions::error::{DeviceError, DeviceErrorKind};
use crate::functions::handles::Handles;
use crate::pci::address::PciAddress;
use crate::pci::{PacedBinding, PlacedFunction, VectorBinding};
use crate::snapshot::Snapshot;

/// What tables need of all functions.
pub(crate) fn described(devices: &[(PciAddress, DeviceConfig)]) -> DescribedPci {
    let buses = devices
        .iter()
        .filter_map(|(_, config)| secondary_bus(config));
    DescribedPci {
        last_bus: buses.max().unwrap_or(0),
        named: named(devices),
    }
}

fn named(devices: &[(PciAddress, DeviceConfig)]) -> Vec<NamedFunction> {
    let port_to = |bus| {
        let mut all = devices.iter();
        all.find(|(_, config)| secondary_bus(config) == Some(bus))
            .map(|(port, _)| port.device())
    };
    let named = devices.iter().filter_map(|(address, config)| {
        let DeviceConfig::Net(nic) = config else {
            return None;
        };
        Some(NamedFunction {
            device: address.device(),
            port: port_to(address.bus()),
            index: nic.acpi_index?,
        })
    });
    named.collect()
}

fn secondary_bus(config: &DeviceConfig) -> Option<u8> {
    match config {
        DeviceConfig::RootPort { secondary_bus } => Some(*secondary_bus),
        _ => None,
    }
}

/// Makes all functions, with their interrupts bound to `vm`: new ones, or those of `snapshot`.
pub(crate) fn make(
    devices: Vec<(PciAddress, DeviceConfig)>,
    vm: &Arc<Vm>,
    handles: &mut Handles<'_>,
    mut snapshot: Option<&mut Snapshot>,
) -> Result<Vec<PlacedFunction>, DeviceError> {
    check_places(&devices)?;
    let occupied: Vec<u8> = devices.iter().map(|(address, _)| address.bus()).collect();
    let ram = Arc::new(vm.ram().clone());
    let pool = Arc::new(Mutex::new(GsiPool::default()));
    let limiter = Arc::new(ChangeLimiter::of_routes());
    let mut functions: Vec<PlacedFunction> = Vec::with_capacity(devices.len());
    for (address, config) in devices {
        let failed = |source| DeviceError { address, source };
        let router = InterruptRouter::new(Arc::clone(vm));
        let direct = Arc::new(VectorBinding::new(router, Arc::clone(&pool)));
        let binding = Arc::new(PacedBinding::new(
            direct,
            Arc::clone(&limiter),
            handles.route_failures.clone(),
        ));
        let state = snapshot
            .as_mut()
            .map(|snapshot| snapshot.take_function(address));
        let context = FunctionContext {
            address,
            ram: &ram,
            binding,
        };
        let secondary_bus = secondary_bus(&config);
        let is_occupied = secondary_bus.is_some_and(|bus| occupied.contains(&bus));
        let function = make_one(context, is_occupied, config, handles, state);
        functions.push(PlacedFunction {
            address,
            function: function.map_err(failed)?,
            secondary_bus,
        });
    }
    Ok(functions)
}

/// Every function has a context of its own, which some bus leads to.
fn check_places(devices: &[(PciAddress, DeviceConfig)]) -> Result<(), DeviceError> {
    let mut buses = vec![0];
    for (index, (address, config)) in devices.iter().enumerate() {
        let refused = |source| DeviceError {
            address: *address,
            source,
        };
        let before = devices.iter().take(index);
        if before.into_iter().any(|(taken, _)| taken == address) {
            return Err(refused(DeviceErrorKind::AddressTaken));
        }
        let DeviceConfig::RootPort { secondary_bus } = config else {
            continue;
        };
        if address.bus() != 0 {
            return Err(refused(DeviceErrorKind::NestedRootPort));
        }
        if buses.contains(secondary_bus) {
            return Err(refused(DeviceErrorKind::BusTaken(*secondary_bus)));
        }
        buses.push(*secondary_bus);
    }
    let lost = devices
        .iter()
        .find(|(address, _)| !buses.contains(&address.bus()));
    lost.map_or(Ok(()), |(address, _)| {
        Err(DeviceError {
            address: *address,
            source: DeviceErrorKind::NoRootPort,
        })
    })
}

/// What every PCI function is made with.
struct FunctionContext<'a> {
    address: PciAddress,
    ram: &'a Arc<GuestRam>,
    binding: Arc<dyn MsiBinding>,
}

fn make_root_port(
    context: FunctionContext<'_>,
    is_occupied: bool,
    state: Option<Payloads>,
) -> Result<Box<dyn PciFunction>, DeviceErrorKind> {
    let number = context.address.device();
    let root_port = match state {
        None => RootPort::new(number, is_occupied, context.binding)?,
        Some(mut payloads) => {
            let root_port =
                RootPort::restored(number, is_occupied, context.binding, &mut payloads)?;
            payloads.finish()?;
            root_port
        }
    };
    Ok(Box::new(root_port))
}

fn make_one(
    context: FunctionContext<'_>,
    is_occupied: bool,
    config: DeviceConfig,
    handles: &mut Handles<'_>,
    mut state: Option<Payloads>,
) -> Result<Box<dyn PciFunction>, DeviceErrorKind> {
    let address = context.address;
    let device: Box<dyn VirtioDevice> = match config {
        DeviceConfig::RootPort { .. } => return make_root_port(context, is_occupied, state),
        DeviceConfig::I6300Esb { action } => {
            return life::watchdog(action, handles.events.notice_sink(address), state);
        }
        DeviceConfig::Pvpanic => return life::pvpanic(handles.events.notice_sink(address), state),
        DeviceConfig::Blk { image, config } => {
            let notices = handles.events.notice_sink(address);
            let device = match &mut state {
                None => BlkDevice::new(image, &config, notices)?,
                Some(payloads) => BlkDevice::restored(image, &config, notices, payloads)?,
            };
            handles.disks.insert(address, device.control());
            // Threads that serve guests may make no ring.
            Box::new(device.with_ring(context.ram))
        }
        DeviceConfig::Net(nic) => Box::new(handles.nics.make(address, nic, state.as_mut())?),
        DeviceConfig::Rng => Box::new(RngDevice::new()),
        DeviceConfig::Console(ports) => match &mut state {
            None => Box::new(ConsoleDevice::new(ports)),
            Some(payloads) => Box::new(ConsoleDevice::restored(ports, payloads)?),
        },
        DeviceConfig::Balloon(config) => {
            balloon::make(&config, context.ram, handles, state.as_mut())?
        }
        DeviceConfig::Vsock(config) => Box::new(match &mut state {
            None => VsockDevice::new(config)?,
            Some(payloads) => VsockDevice::restored(config, payloads)?,
        }),
    };
    make_virtio(context, device, state)
}

fn make_virtio(
    context: FunctionContext<'_>,
    device: Box<dyn VirtioDevice>,
    state: Option<Payloads>,
) -> Result<Box<dyn PciFunction>, DeviceErrorKind> {
    let FunctionContext { ram, binding, .. } = context;
    let ram = Arc::clone(ram);
    let function = match state {
        None => VirtioPciFunction::new(device, ram, binding)?,
        Some(mut payloads) => {
            let function = VirtioPciFunction::restored(device, ram, binding, &mut payloads)?;
            payloads.finish()?;
            function
        }
    };
    Ok(Box::new(function))
}

#[cfg(test)]
mod tests {
    use vmm_devices::virtio::net::NetConfig;

    use super::*;
    use crate::nics::NicConfig;

    #[test]
    fn nics_with_a_number_are_found_by_the_port_that_they_are_behind() {
        let at = |bus, device| PciAddress::new(bus, device).unwrap();
        let nic = |acpi_index| {
            DeviceConfig::Net(NicConfig {
                taps: Vec::new(),
                vhost: Vec::new(),
                config: NetConfig::default(),
                acpi_index,
            })
        };
        let root_port = |secondary_bus| DeviceConfig::RootPort { secondary_bus };
        let described = described(&[
            (at(3, 0), nic(Some(101))),
            (at(0, 9), root_port(2)),
            (at(0, 10), root_port(3)),
            (at(2, 0), nic(None)),
            (at(0, 5), nic(Some(7))),
        ]);
        assert_eq!(described.last_bus, 3);
        let behind = NamedFunction {
            device: 0,
            port: Some(10),
            index: 101,
        };
        let on_bus_0 = NamedFunction {
            device: 5,
            port: None,
            index: 7,
        };
        assert_eq!(described.named, [behind, on_bus_0]);
    }
}
