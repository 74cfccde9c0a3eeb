//! From configurations to PCI functions.

use std::sync::{Arc, Mutex};

use vmm_devices::pci::root_port::{RootPort, RootPortError};
use vmm_devices::virtio::blk::{BlkDevice, BlkError};
use vmm_devices::virtio::net::NetDevice;
use vmm_devices::virtio::rng::RngDevice;
use vmm_devices::virtio::{VirtioDevice, VirtioPciFunction, transport};
use vmm_devices::{GuestRam, MsiBinding, PciFunction};
use vmm_kvm::{GsiPool, InterruptRouter, Vm};
use vmm_sys::tap::{Tap, TapError};

use crate::config::DeviceConfig;
use crate::disks::Disks;
use crate::events::GuestEvents;
use crate::pci::{PciAddress, PlacedFunction, VectorBinding};

/// A PCI function could not be made.
#[derive(Debug, thiserror::Error)]
#[error("the function at {address} can not be made")]
pub struct DeviceError {
    /// Where it was to be.
    pub address: PciAddress,
    /// Why.
    #[source]
    pub source: DeviceErrorKind,
}

/// Why a PCI function could not be made.
#[derive(Debug, thiserror::Error)]
pub enum DeviceErrorKind {
    /// Two functions at one address.
    #[error("another function is there already")]
    AddressTaken,
    /// A root port is on another bus than 0.
    #[error("a root port must be on bus 0")]
    NestedRootPort,
    /// Two root ports with one bus, or one with bus 0.
    #[error("bus {0:#04x} is not free for this root port")]
    BusTaken(u8),
    /// No root port leads to the function's bus.
    #[error("no root port leads to its bus")]
    NoRootPort,
    /// A root port.
    #[error("the root port can not be made")]
    RootPort(#[from] RootPortError),
    /// A disk.
    #[error("the disk is not usable")]
    Blk(#[from] BlkError),
    /// A network card.
    #[error("the tap is not usable")]
    Tap(#[from] TapError),
    /// The transport.
    #[error("its virtio transport can not be made")]
    Transport(#[from] transport::BuildError),
}

/// How devices and the machine's owner reach each other, while both work.
pub(crate) struct Handles<'a> {
    /// Where notices of devices go.
    pub(crate) events: &'a GuestEvents,
    /// Disks that were made.
    pub(crate) disks: Disks,
}

/// Makes all functions, with their interrupts bound to `vm`.
pub(crate) fn make(
    devices: Vec<(PciAddress, DeviceConfig)>,
    vm: &Arc<Vm>,
    handles: &mut Handles<'_>,
) -> Result<Vec<PlacedFunction>, DeviceError> {
    check_places(&devices)?;
    let occupied: Vec<u8> = devices.iter().map(|(address, _)| address.bus()).collect();
    let ram = Arc::new(vm.ram().clone());
    let pool = Arc::new(Mutex::new(GsiPool::default()));
    let mut functions: Vec<PlacedFunction> = Vec::with_capacity(devices.len());
    for (address, config) in devices {
        let failed = |source| DeviceError { address, source };
        let router = InterruptRouter::new(Arc::clone(vm));
        let binding = Arc::new(VectorBinding::new(router, Arc::clone(&pool)));
        let secondary_bus = match &config {
            DeviceConfig::RootPort { secondary_bus } => Some(*secondary_bus),
            _ => None,
        };
        let is_occupied = secondary_bus.is_some_and(|bus| occupied.contains(&bus));
        let function = match config {
            DeviceConfig::RootPort { .. } => RootPort::new(address.device(), is_occupied, binding)
                .map(|port| Box::new(port) as Box<dyn PciFunction>)
                .map_err(DeviceErrorKind::RootPort),
            config => make_one(address, config, handles, (&ram, binding)),
        };
        functions.push(PlacedFunction {
            address,
            function: function.map_err(failed)?,
            secondary_bus,
        });
    }
    Ok(functions)
}

/// Every function has a place of its own, which some bus leads to.
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

fn make_one(
    address: PciAddress,
    config: DeviceConfig,
    handles: &mut Handles<'_>,
    (ram, binding): (&Arc<GuestRam>, Arc<dyn MsiBinding>),
) -> Result<Box<dyn PciFunction>, DeviceErrorKind> {
    let device: Box<dyn VirtioDevice> = match config {
        DeviceConfig::Blk { image, config } => {
            let device = BlkDevice::new(image, &config, handles.events.notice_sink(address))?;
            handles.disks.insert(address, device.control());
            Box::new(device)
        }
        DeviceConfig::Net { tap, mac, mtu } => Box::new(NetDevice::new(Tap::adopt(tap)?, mac, mtu)),
        DeviceConfig::Rng => Box::new(RngDevice::new()),
        DeviceConfig::RootPort { .. } => return Err(DeviceErrorKind::NestedRootPort),
    };
    let function = VirtioPciFunction::new(device, Arc::clone(ram), binding)?;
    Ok(Box::new(function))
}
