//! A virtio device in the hands of an attacker: registers and rings raw, nothing is checked.

mod descriptor;
mod rings;

use core::sync::atomic::{Ordering, fence};

use super::outcome::Outcome;
use crate::acpi::Acpi;
use crate::clock::Clock;
use crate::memory::{DmaBuffer, Registers};
use crate::pci::Function;
use crate::second_cpu::SecondCpu;
use crate::virtio::{
    ACKNOWLEDGE, COMMON, DEVICE, DEVICE_FEATURE, DEVICE_FEATURE_SELECT, DEVICE_STATUS, DRIVER,
    DRIVER_FEATURE, DRIVER_FEATURE_SELECT, DRIVER_OK, DeviceError, FEATURES_OK, Kind, NEEDS_RESET,
    NOTIFY, QUEUE_DESC, QUEUE_DEVICE, QUEUE_DRIVER, QUEUE_ENABLE, QUEUE_NOTIFY_OFF, QUEUE_SELECT,
    QUEUE_SIZE, QUEUES, window,
};
pub use descriptor::{Desc, Field, INDIRECT, NEXT, Ring, WRITE, read, write};

/// Descriptors of each queue.
pub const SIZE: u16 = 16;
/// Queues that are used of a device; more have no case of their own.
const MAX_QUEUES: usize = 8;
const PAGE_BYTES: usize = 4096;
/// Buffers of requests.
const DATA_PAGES: usize = 8;

/// All other features are taken.
const EVENT_IDX: u64 = 1 << 29;

/// No reset and no answer takes longer on a host that is busy with other things.
const PATIENCE_MS: u64 = 10_000;
/// How long is waited for something that is not expected.
const BRIEFLY_MS: u64 = 15;

/// Far beyond the memory of any machine that this runs in, and yet an address.
pub const BEYOND_MEMORY: u64 = 1 << 45;

/// What all victims use by turns.
pub struct Memory {
    rings: DmaBuffer,
    /// Buffers: pages that belong to nobody else.
    pub data: DmaBuffer,
    /// Writes to either, and to registers.
    pub second_cpu: Option<SecondCpu>,
}

impl Memory {
    /// Takes the memory; once.
    pub fn new(acpi: &Acpi) -> Option<Self> {
        Some(Self {
            rings: DmaBuffer::pages(MAX_QUEUES)?,
            data: DmaBuffer::pages(DATA_PAGES)?,
            second_cpu: SecondCpu::of(acpi),
        })
    }
}

/// The device.
pub struct Victim<'a> {
    pub kind: Kind,
    pub function: Function,
    pub common: Registers,
    pub notify: Registers,
    /// Device-specific configuration.
    pub configuration: Registers,
    pub clock: &'a Clock,
    pub memory: &'a Memory,
    pub features: u64,
    /// An answer is expected, so it is waited for.
    pub is_patient: bool,
    kick_bytes: usize,
    queues: u16,
    avail: [u16; MAX_QUEUES],
    seen: [u16; MAX_QUEUES],
}

impl<'a> Victim<'a> {
    /// Finds the registers of a device.
    pub fn open(
        kind: Kind,
        function: &Function,
        clock: &'a Clock,
        memory: &'a Memory,
    ) -> Result<Self, DeviceError> {
        function.enable();
        let part = |wanted| window(function, wanted).ok_or(DeviceError::Missing("a capability"));
        let (notify, capability) = part(NOTIFY)?;
        let (common, _) = part(COMMON)?;
        let most = u16::try_from(MAX_QUEUES).unwrap_or(u16::MAX);
        Ok(Self {
            kind,
            function: *function,
            common,
            notify,
            configuration: part(DEVICE)?.0,
            clock,
            memory,
            features: 0,
            is_patient: true,
            kick_bytes: function.configuration().read32(capability + 16) as usize,
            queues: common.read16(QUEUES).min(most),
            avail: [0; MAX_QUEUES],
            seen: [0; MAX_QUEUES],
        })
    }

    /// How many queues are set up.
    pub fn queues(&self) -> u16 {
        self.queues
    }

    /// The queue that is attacked for all devices alike: one that a kick has the device look at.
    pub fn main_queue(&self) -> u16 {
        match self.kind {
            Kind::Blk | Kind::Rng | Kind::Balloon => 0,
            Kind::Net | Kind::Vsock => 1,
            // Messages of the driver.
            Kind::Console => 3,
        }
    }

    pub fn status(&self) -> u8 {
        self.common.read8(DEVICE_STATUS)
    }

    pub fn set_status(&self, status: u8) {
        self.common.write8(DEVICE_STATUS, status);
    }

    /// Resets the device.
    pub fn reset(&mut self) -> Result<(), DeviceError> {
        self.set_status(0);
        let deadline = self.clock.after_ms(PATIENCE_MS);
        while self.status() != 0 {
            if self.clock.now() > deadline {
                return Err(DeviceError::Timeout("reset"));
            }
        }
        self.avail = [0; MAX_QUEUES];
        self.seen = [0; MAX_QUEUES];
        for page in 0..MAX_QUEUES {
            self.memory.rings.write(page * PAGE_BYTES, &[0; PAGE_BYTES]);
        }
        Ok(())
    }

    /// Resets it and agrees on all features.
    pub fn negotiate(&mut self) -> Result<(), DeviceError> {
        self.reset()?;
        self.set_status(ACKNOWLEDGE | DRIVER);
        let mut offered = 0;
        for half in [0, 1] {
            self.common.write32(DEVICE_FEATURE_SELECT, half);
            offered |= u64::from(self.common.read32(DEVICE_FEATURE)) << (32 * half);
        }
        self.features = offered & !EVENT_IDX;
        for (half, shift) in [(0, 0), (1, 32)] {
            self.common.write32(DRIVER_FEATURE_SELECT, half);
            let bits = (self.features >> shift & 0xffff_ffff) as u32;
            self.common.write32(DRIVER_FEATURE, bits);
        }
        self.set_status(ACKNOWLEDGE | DRIVER | FEATURES_OK);
        if self.status() & FEATURES_OK == 0 {
            return Err(DeviceError::Refused("its own features"));
        }
        Ok(())
    }

    /// Programs a queue and enables it. Whether the device took that.
    pub fn program(&self, queue: u16, ring: &Ring) -> bool {
        self.common.write16(QUEUE_SELECT, queue);
        self.common.write16(QUEUE_SIZE, ring.size);
        self.common.write64(QUEUE_DESC, ring.descriptors);
        self.common.write64(QUEUE_DRIVER, ring.avail);
        self.common.write64(QUEUE_DEVICE, ring.used);
        self.common.write16(QUEUE_ENABLE, 1);
        self.common.read16(QUEUE_ENABLE) == 1
    }

    /// Tells the device that all is set up.
    pub fn go(&self) {
        self.set_status(ACKNOWLEDGE | DRIVER | FEATURES_OK | DRIVER_OK);
    }

    /// From reset to a running device with empty queues.
    pub fn start(&mut self) -> Result<(), DeviceError> {
        self.negotiate()?;
        for queue in 0..self.queues {
            if !self.program(queue, &self.honest_ring(queue)) {
                return Err(DeviceError::Refused("an honest queue"));
            }
        }
        self.go();
        if self.needs_reset() || self.status() & DRIVER_OK == 0 {
            return Err(DeviceError::Refused("an honest driver"));
        }
        Ok(())
    }

    pub fn needs_reset(&self) -> bool {
        self.status() & NEEDS_RESET != 0
    }

    pub fn kick(&self, queue: u16) {
        fence(Ordering::SeqCst);
        self.common.write16(QUEUE_SELECT, queue);
        let offset = usize::from(self.common.read16(QUEUE_NOTIFY_OFF)) * self.kick_bytes;
        self.notify.write16(offset, queue);
    }

    /// Offers one chain in the first descriptors and kicks the device.
    pub fn send(&mut self, queue: u16, descs: &[Desc]) {
        self.put_chain(queue, 0, descs);
        self.offer(queue, 0);
        self.kick(queue);
    }

    /// Waits for an answer, or for the device to give up.
    pub fn outcome(&mut self, queue: u16) -> Outcome {
        let ms = if self.is_patient {
            PATIENCE_MS
        } else {
            BRIEFLY_MS
        };
        let deadline = self.clock.after_ms(ms);
        loop {
            if self.take_used(queue).is_some() {
                return Outcome::Answered(0);
            }
            if self.needs_reset() {
                return Outcome::NeedsReset;
            }
            if self.clock.now() > deadline {
                return Outcome::Ignored;
            }
        }
    }

    /// Waits for an answer, which must come.
    pub fn answer(&mut self, queue: u16) -> Result<(u32, u32), DeviceError> {
        let deadline = self.clock.after_ms(PATIENCE_MS);
        loop {
            if let Some(used) = self.take_used(queue) {
                return Ok(used);
            }
            if self.needs_reset() {
                return Err(DeviceError::Refused("an honest request"));
            }
            if self.clock.now() > deadline {
                return Err(DeviceError::Timeout("an honest request"));
            }
        }
    }

    /// Gives the device time to do what it should not.
    pub fn wait_briefly(&self) {
        self.clock.sleep_until(self.clock.after_ms(BRIEFLY_MS));
    }

    /// A place in the buffers.
    pub fn data(&self, offset: u64) -> u64 {
        self.memory.data.address() + offset
    }
}
