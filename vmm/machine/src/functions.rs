//! From configurations to PCI functions.

mod life;

use std::sync::{Arc, Mutex};

use vmm_devices::pci::root_port::{RootPort, RootPortError};
use vmm_devices::pvpanic::PvpanicError;
use vmm_devices::virtio::balloon::{BalloonControl, BalloonError};
use vmm_devices::virtio::blk::{BlkDevice, BlkError};
use vmm_devices::virtio::console::ConsoleDevice;
use vmm_devices::virtio::rng::RngDevice;
use vmm_devices::virtio::vsock::{VsockDevice, VsockError};
use vmm_devices::virtio::{VirtioDevice, VirtioPciFunction, transport};
use vmm_devices::watchdog::i6300esb::I6300EsbError;
use vmm_devices::{GuestRam, MsiBinding, Payloads, PciFunction, StateError};
use vmm_kvm::{GsiPool, InterruptRouter, Vm};

use crate::balloon;
use crate::cards::{Cards, NetCardError};
use crate::config::DeviceConfig;
use crate::disks::Disks;
use crate::events::GuestEvents;
use crate::pace::Pace;
use crate::pci::{PacedBinding, PciAddress, PlacedFunction, VectorBinding};
use crate::snapshot::Snapshot;

/// A PCI function could not be made.
#[derive(Debug, thiserror::Error)]
#[error("the function at {address} cannot be made")]
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
    #[error("the root port cannot be made")]
    RootPort(#[from] RootPortError),
    /// A disk.
    #[error("the disk is not usable")]
    Blk(#[from] BlkError),
    /// A network card.
    #[error("the network card is not usable")]
    Net(#[from] NetCardError),
    /// A balloon.
    #[error("the balloon cannot be made")]
    Balloon(#[from] BalloonError),
    /// Which of two balloons would requests be for?
    #[error("a machine has one balloon at most")]
    SecondBalloon,
    /// Sockets.
    #[error("the socket device is not usable")]
    Vsock(#[from] VsockError),
    /// The transport.
    #[error("its virtio transport cannot be made")]
    Transport(#[from] transport::BuildError),
    /// A watchdog.
    #[error("the watchdog cannot be made")]
    I6300Esb(#[from] I6300EsbError),
    /// A panic device.
    #[error("the panic device cannot be made")]
    Pvpanic(#[from] PvpanicError),
    /// State of it that nothing took.
    #[error("its state does not fit")]
    State(#[from] StateError),
}

/// The highest bus that a root port leads to; 0 without one. No other bus ever has devices.
pub(crate) fn last_bus(devices: &[(PciAddress, DeviceConfig)]) -> u8 {
    let buses = devices.iter().filter_map(|(_, config)| match config {
        DeviceConfig::RootPort { secondary_bus } => Some(*secondary_bus),
        _ => None,
    });
    buses.max().unwrap_or(0)
}

/// How devices and the machine's owner reach each other, while both work.
pub(crate) struct Handles<'a> {
    /// Where notices of devices go.
    pub(crate) events: &'a GuestEvents,
    /// Disks that were made.
    pub(crate) disks: Disks,
    /// Network cards that were made.
    pub(crate) cards: Cards,
    /// The balloon that was made.
    pub(crate) balloon: Option<Arc<BalloonControl>>,
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
    let pace = Arc::new(Pace::of_routes());
    let mut functions: Vec<PlacedFunction> = Vec::with_capacity(devices.len());
    for (address, config) in devices {
        let failed = |source| DeviceError { address, source };
        let router = InterruptRouter::new(Arc::clone(vm));
        let direct = Arc::new(VectorBinding::new(router, Arc::clone(&pool)));
        let binding = Arc::new(PacedBinding::new(direct, Arc::clone(&pace)));
        let state = snapshot
            .as_mut()
            .map(|snapshot| snapshot.take_function(address));
        let place = Place {
            address,
            ram: &ram,
            binding,
        };
        let mut secondary_bus = None;
        let function = match config {
            DeviceConfig::RootPort { secondary_bus: bus } => {
                secondary_bus = Some(bus);
                make_root_port(place, occupied.contains(&bus), state)
            }
            DeviceConfig::I6300Esb { action } => {
                life::watchdog(action, handles.events.notice_sink(address), state)
            }
            DeviceConfig::Pvpanic => life::pvpanic(handles.events.notice_sink(address), state),
            config => make_one(place, config, handles, state),
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

/// Where a function is made.
struct Place<'a> {
    address: PciAddress,
    ram: &'a Arc<GuestRam>,
    binding: Arc<dyn MsiBinding>,
}

fn make_root_port(
    place: Place<'_>,
    is_occupied: bool,
    state: Option<Payloads>,
) -> Result<Box<dyn PciFunction>, DeviceErrorKind> {
    let number = place.address.device();
    let port = match state {
        None => RootPort::new(number, is_occupied, place.binding)?,
        Some(mut payloads) => {
            let port = RootPort::restored(number, is_occupied, place.binding, &mut payloads)?;
            payloads.finish()?;
            port
        }
    };
    Ok(Box::new(port))
}

fn make_one(
    place: Place<'_>,
    config: DeviceConfig,
    handles: &mut Handles<'_>,
    mut state: Option<Payloads>,
) -> Result<Box<dyn PciFunction>, DeviceErrorKind> {
    let Place {
        address,
        ram,
        binding,
    } = place;
    let device: Box<dyn VirtioDevice> = match config {
        DeviceConfig::Blk { image, config } => {
            let notices = handles.events.notice_sink(address);
            let device = match &mut state {
                None => BlkDevice::new(image, &config, notices)?,
                Some(payloads) => BlkDevice::restored(image, &config, notices, payloads)?,
            };
            handles.disks.insert(address, device.control());
            // Threads that serve guests may make no ring.
            Box::new(device.with_ring(ram))
        }
        DeviceConfig::Net(card) => Box::new(handles.cards.make(address, card, state.as_mut())?),
        DeviceConfig::Rng => Box::new(RngDevice::new()),
        DeviceConfig::Console(ports) => match &mut state {
            None => Box::new(ConsoleDevice::new(ports)),
            Some(payloads) => Box::new(ConsoleDevice::restored(ports, payloads)?),
        },
        DeviceConfig::RootPort { .. } | DeviceConfig::I6300Esb { .. } | DeviceConfig::Pvpanic => {
            return Err(DeviceErrorKind::NestedRootPort);
        }
        DeviceConfig::Balloon(config) => balloon::make(&config, ram, handles, state.as_mut())?,
        DeviceConfig::Vsock(config) => Box::new(match &mut state {
            None => VsockDevice::new(config)?,
            Some(payloads) => VsockDevice::restored(config, payloads)?,
        }),
    };
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
