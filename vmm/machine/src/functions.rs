//! From configurations to PCI functions.

use std::sync::{Arc, Mutex};

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
use crate::pci::{PciAddress, VectorBinding};

/// A function and its place.
pub(crate) type PlacedFunction = (PciAddress, Box<dyn PciFunction>);

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
    let ram = Arc::new(vm.ram().clone());
    let pool = Arc::new(Mutex::new(GsiPool::default()));
    let mut functions: Vec<PlacedFunction> = Vec::with_capacity(devices.len());
    for (address, config) in devices {
        let failed = |source| DeviceError { address, source };
        if functions.iter().any(|(taken, _)| *taken == address) {
            return Err(failed(DeviceErrorKind::AddressTaken));
        }
        let router = InterruptRouter::new(Arc::clone(vm));
        let binding = Arc::new(VectorBinding::new(router, Arc::clone(&pool)));
        let function = make_one(address, config, handles, (&ram, binding)).map_err(failed)?;
        functions.push((address, function));
    }
    Ok(functions)
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
    };
    let function = VirtioPciFunction::new(device, Arc::clone(ram), binding)?;
    Ok(Box::new(function))
}
