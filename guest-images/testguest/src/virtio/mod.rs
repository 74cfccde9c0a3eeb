//! virtio 1.x over PCI, the driver's side (virtio 1.2, chapters 2, 3 and 4.1).

pub mod balloon;
pub mod blk;
pub mod console;
mod error;
pub mod load;
pub mod net;
pub mod numbers;
pub mod queue;
pub mod rng;
pub mod vsock;

use core::fmt;

use testguest_lib::command_line::Mode;

use crate::acpi::Acpi;
use crate::clock::Clock;
use crate::memory::Registers;
use crate::pci::{Ecam, Function, Msix};
use crate::trap;
pub use error::DeviceError;
use queue::Queue;

const VENDOR: u16 = 0x1af4;
/// Device ids of modern devices begin here; the difference is the virtio device type.
const MODERN_DEVICE_BASE: u16 = 0x1040;
const MODERN_DEVICE_LAST: u16 = 0x107f;
pub(crate) const CAPABILITY_VENDOR: u8 = 0x09;

/// Capability types (4.1.4).
pub(crate) const COMMON: u8 = 1;
pub(crate) const NOTIFY: u8 = 2;
pub(crate) const ISR: u8 = 3;
pub(crate) const DEVICE: u8 = 4;

/// Offsets of the common configuration (4.1.4.3).
pub(crate) const DEVICE_FEATURE_SELECT: usize = 0x00;
pub(crate) const DEVICE_FEATURE: usize = 0x04;
pub(crate) const DRIVER_FEATURE_SELECT: usize = 0x08;
pub(crate) const DRIVER_FEATURE: usize = 0x0c;
pub(crate) const CONFIG_MSIX_VECTOR: usize = 0x10;
pub(crate) const QUEUES: usize = 0x12;
pub(crate) const DEVICE_STATUS: usize = 0x14;
pub(crate) const QUEUE_SELECT: usize = 0x16;
pub(crate) const QUEUE_SIZE: usize = 0x18;
pub(crate) const QUEUE_MSIX_VECTOR: usize = 0x1a;
pub(crate) const QUEUE_ENABLE: usize = 0x1c;
pub(crate) const QUEUE_NOTIFY_OFF: usize = 0x1e;
pub(crate) const QUEUE_DESC: usize = 0x20;
pub(crate) const QUEUE_DRIVER: usize = 0x28;
pub(crate) const QUEUE_DEVICE: usize = 0x30;

pub(crate) const ACKNOWLEDGE: u8 = 1;
pub(crate) const DRIVER: u8 = 2;
pub(crate) const DRIVER_OK: u8 = 4;
pub(crate) const FEATURES_OK: u8 = 8;
/// The device cannot go on before it is reset.
pub(crate) const NEEDS_RESET: u8 = 64;
const FAILED: u8 = 128;

pub(crate) const VERSION_1: u64 = 1 << 32;
const EVENT_IDX: u64 = 1 << 29;
const NO_VECTOR: u16 = 0xffff;
const RESET_TIMEOUT_MS: u64 = 2_000;
/// Entries this guest wants of a queue.
const WANTED_QUEUE_SIZE: u16 = 64;

/// The device types this guest tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// NIC.
    Net,
    /// Block device.
    Blk,
    /// Entropy source.
    Rng,
    /// Console with ports.
    Console,
    /// Memory balloon.
    Balloon,
    /// Socket device.
    Vsock,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Net => "net",
            Self::Blk => "blk",
            Self::Rng => "rng",
            Self::Console => "console",
            Self::Balloon => "balloon",
            Self::Vsock => "vsock",
        })
    }
}

/// The machine's PCI functions.
pub fn functions(acpi: Option<&Acpi>) -> Result<Ecam, DeviceError> {
    let ecam = acpi.and_then(|acpi| acpi.ecam.as_ref().and_then(Ecam::map));
    ecam.ok_or(DeviceError::Missing("ECAM window"))
}

/// Which kind of device a PCI function is; `None` if it is none of those tested.
pub fn kind(function: &Function) -> Option<Kind> {
    let (vendor, device) = function.ids();
    if vendor != VENDOR || !(MODERN_DEVICE_BASE..=MODERN_DEVICE_LAST).contains(&device) {
        return None;
    }
    match device - MODERN_DEVICE_BASE {
        1 => Some(Kind::Net),
        2 => Some(Kind::Blk),
        3 => Some(Kind::Console),
        4 => Some(Kind::Rng),
        5 => Some(Kind::Balloon),
        19 => Some(Kind::Vsock),
        _ => None,
    }
}

/// Where a device's common configuration lies in guest physical memory; 0 when it has none.
pub fn registers_address(function: &Function) -> u64 {
    window(function, COMMON).map_or(0, |(registers, _)| registers.address())
}

/// The status of the virtio device that a PCI function is, if it is one.
pub fn status(function: &Function) -> Option<u8> {
    kind(function)?;
    let (registers, _) = window(function, COMMON)?;
    Some(registers.read8(DEVICE_STATUS))
}

/// A device between reset and [`Device::start`], or running.
pub struct Device<'a> {
    common: Registers,
    notify: Registers,
    notify_multiplier: usize,
    /// Device-specific configuration.
    pub configuration: Registers,
    msix: Option<Msix>,
    clock: &'a Clock,
    next_message: u16,
    /// Features both sides agreed on.
    pub features: u64,
}

impl<'a> Device<'a> {
    /// Resets the device and negotiates `wanted` features, of which it need not have any.
    pub fn open(
        function: &Function,
        clock: &'a Clock,
        mode: Mode,
        wanted: u64,
    ) -> Result<Self, DeviceError> {
        function.enable();
        let (notify, notify_capability) =
            window(function, NOTIFY).ok_or(DeviceError::Missing("notify capability"))?;
        let multiplier = function.configuration().read32(notify_capability + 16);
        let (common, _) =
            window(function, COMMON).ok_or(DeviceError::Missing("common capability"))?;
        window(function, ISR).ok_or(DeviceError::Missing("ISR capability"))?;
        // Not every device has a configuration; where there is none, reads give ones.
        let configuration =
            window(function, DEVICE).map_or(common.part(0, 0), |(part, _)| Some(part));
        let msix = match mode {
            Mode::Irq => Some(function.msix().ok_or(DeviceError::Missing("MSI-X table"))?),
            Mode::Poll => None,
        };
        let mut device = Self {
            common,
            notify,
            notify_multiplier: multiplier as usize,
            configuration: configuration.ok_or(DeviceError::Missing("device configuration"))?,
            msix,
            clock,
            next_message: 0,
            features: 0,
        };
        device.reset()?;
        device.negotiate(wanted)?;
        if let Some(msix) = &device.msix {
            msix.enable();
        } else if let Some(msix) = function.msix() {
            msix.disable();
        }
        device.common.write16(CONFIG_MSIX_VECTOR, NO_VECTOR);
        Ok(device)
    }

    fn reset(&self) -> Result<(), DeviceError> {
        self.common.write8(DEVICE_STATUS, 0);
        let deadline = self.clock.after_ms(RESET_TIMEOUT_MS);
        while self.common.read8(DEVICE_STATUS) != 0 {
            if self.clock.now() > deadline {
                return Err(DeviceError::Timeout("reset"));
            }
        }
        Ok(())
    }

    fn add_status(&self, bit: u8) {
        let status = self.common.read8(DEVICE_STATUS);
        self.common.write8(DEVICE_STATUS, status | bit);
    }

    fn negotiate(&mut self, wanted: u64) -> Result<(), DeviceError> {
        self.add_status(ACKNOWLEDGE);
        self.add_status(DRIVER);
        let mut offered = 0;
        for half in [0, 1] {
            self.common.write32(DEVICE_FEATURE_SELECT, half);
            offered |= u64::from(self.common.read32(DEVICE_FEATURE)) << (32 * half);
        }
        if offered & VERSION_1 == 0 {
            self.add_status(FAILED);
            return Err(DeviceError::Missing("VIRTIO_F_VERSION_1"));
        }
        self.features = offered & (wanted | VERSION_1);
        let halves = [self.features & 0xffff_ffff, self.features >> 32];
        for (half, value) in (0u32..).zip(halves) {
            self.common.write32(DRIVER_FEATURE_SELECT, half);
            self.common
                .write32(DRIVER_FEATURE, (value & 0xffff_ffff) as u32);
        }
        self.add_status(FEATURES_OK);
        if self.common.read8(DEVICE_STATUS) & FEATURES_OK == 0 {
            self.add_status(FAILED);
            return Err(DeviceError::Refused("its own features"));
        }
        Ok(())
    }

    /// Sets queue `index` up. With interrupts, it gets an MSI-X entry of its own, which arrives as
    /// `vector`.
    pub fn queue(&mut self, index: u16, vector: u8) -> Result<Queue<'a>, DeviceError> {
        self.queue_of(index, vector, WANTED_QUEUE_SIZE)
    }

    /// The same with up to `most` entries.
    pub fn queue_of(
        &mut self,
        index: u16,
        vector: u8,
        most: u16,
    ) -> Result<Queue<'a>, DeviceError> {
        self.common.write16(QUEUE_SELECT, index);
        let size = match self.common.read16(QUEUE_SIZE) {
            0 => return Err(DeviceError::Missing("queue")),
            offered => largest_power_of_two(offered.min(most)),
        };
        self.common.write16(QUEUE_SIZE, size);
        self.common.write16(QUEUE_MSIX_VECTOR, NO_VECTOR);
        let vector = match &self.msix {
            None => None,
            Some(msix) => {
                let message = self.next_message;
                if message >= msix.entries() {
                    return Err(DeviceError::Missing("MSI-X entry"));
                }
                self.next_message += 1;
                msix.set(message, self.clock.lapic(), vector);
                self.common.write16(QUEUE_MSIX_VECTOR, message);
                if self.common.read16(QUEUE_MSIX_VECTOR) != message {
                    return Err(DeviceError::Refused("an MSI-X vector"));
                }
                Some(vector)
            }
        };
        let offset = usize::from(self.common.read16(QUEUE_NOTIFY_OFF)) * self.notify_multiplier;
        let kick = self
            .notify
            .part(offset, 2)
            .ok_or(DeviceError::Missing("notify register"))?;
        let queue = Queue::new(index, size, kick, vector, self.clock)?;
        let (descriptors, avail, used) = queue.addresses();
        self.common.write64(QUEUE_DESC, descriptors);
        self.common.write64(QUEUE_DRIVER, avail);
        self.common.write64(QUEUE_DEVICE, used);
        self.common.write16(QUEUE_ENABLE, 1);
        Ok(queue)
    }

    /// Tells the device that its queues are ready.
    pub fn start(&self) {
        self.add_status(DRIVER_OK);
    }
}

impl Drop for Device<'_> {
    /// A device that is not reset goes on using the memory of its queues.
    fn drop(&mut self) {
        self.common.write8(DEVICE_STATUS, 0);
        if let Some(msix) = &self.msix {
            msix.disable();
        }
    }
}

/// The vector for queue `index` of a device; those of several devices may be the same, as only one
/// is in use at a time.
pub fn queue_vector(index: u8) -> u8 {
    trap::FIRST_IRQ_VECTOR + 1 + index % (trap::IRQ_VECTORS - 1)
}

/// The registers that a virtio capability points to, and the capability's own offset.
pub(crate) fn window(function: &Function, wanted: u8) -> Option<(Registers, usize)> {
    let configuration = function.configuration();
    function
        .capabilities(CAPABILITY_VENDOR)
        .find_map(|capability| {
            if configuration.read8(capability + 3) != wanted {
                return None;
            }
            let bar = function.bar_address(configuration.read8(capability + 4))?;
            let offset = u64::from(configuration.read32(capability + 8));
            let bytes = u64::from(configuration.read32(capability + 12));
            Some((Registers::map(bar.checked_add(offset)?, bytes)?, capability))
        })
}

fn largest_power_of_two(most: u16) -> u16 {
    1 << most.ilog2()
}
