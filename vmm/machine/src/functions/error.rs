//! Why a PCI function cannot be made.

use vmm_devices::StateError;
use vmm_devices::pci::root_port::RootPortError;
use vmm_devices::pvpanic::PvpanicError;
use vmm_devices::virtio::balloon::BalloonError;
use vmm_devices::virtio::blk::BlkError;
use vmm_devices::virtio::transport;
use vmm_devices::virtio::vsock::VsockError;
use vmm_devices::watchdog::i6300esb::I6300EsbError;

use crate::nics::NicConfigError;
use crate::pci::address::PciAddress;

/// A PCI function could not be made.
#[derive(Debug, thiserror::Error)]
#[error("the function at {address} cannot be made")]
pub struct DeviceError {
    /// Where it was to be.
    pub address: PciAddress,
    /// The underlying error.
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
    /// A NIC.
    #[error("the network device is not usable")]
    Net(#[from] NicConfigError),
    /// The device refuses its configuration, or its payload.
    #[error("the balloon cannot be made")]
    Balloon(#[from] BalloonError),
    /// Which of two balloons would requests be for?
    #[error("a machine has one balloon at most")]
    SecondBalloon,
    /// Sockets.
    #[error("the socket device is not usable")]
    Vsock(#[from] VsockError),
    /// BARs, queues or interrupts of the PCI function.
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
