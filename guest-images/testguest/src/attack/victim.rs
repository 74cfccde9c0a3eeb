//! A virtio device in the hands of an attacker: registers and rings raw, nothing is checked.

use core::sync::atomic::{Ordering, fence};

use super::Outcome;
use crate::clock::Clock;
use crate::memory::{DmaBuffer, Registers};
use crate::pci::Function;
use crate::virtio::{
    ACKNOWLEDGE, COMMON, DEVICE, DEVICE_FEATURE, DEVICE_FEATURE_SELECT, DEVICE_STATUS, DRIVER,
    DRIVER_FEATURE, DRIVER_FEATURE_SELECT, DRIVER_OK, DeviceError, FEATURES_OK, Kind, NEEDS_RESET,
    NOTIFY, QUEUE_DESC, QUEUE_DEVICE, QUEUE_DRIVER, QUEUE_ENABLE, QUEUE_NOTIFY_OFF, QUEUE_SELECT,
    QUEUE_SIZE, QUEUES, window,
};

/// Descriptor flags.
pub const NEXT: u16 = 1;
pub const WRITE: u16 = 2;
pub const INDIRECT: u16 = 4;

/// Descriptors of each queue.
pub const SIZE: u16 = 16;
/// Queues that are used of a device; more have no case of their own.
const MAX_QUEUES: usize = 8;
const PAGE_BYTES: usize = 4096;
/// Places of rings in the page of a queue.
const AVAIL: usize = 0x400;
const USED: usize = 0x800;
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

/// A descriptor as it lies in memory.
#[derive(Clone, Copy)]
pub struct Desc {
    pub address: u64,
    pub bytes: u32,
    pub flags: u16,
    pub next: u16,
}

/// A buffer that the device reads.
pub fn read(address: u64, bytes: u32) -> Desc {
    Desc {
        address,
        bytes,
        flags: 0,
        next: 0,
    }
}

/// A buffer that the device writes.
pub fn write(address: u64, bytes: u32) -> Desc {
    Desc {
        flags: WRITE,
        ..read(address, bytes)
    }
}

/// What all victims use by turns.
pub struct Memory {
    rings: DmaBuffer,
    /// Buffers: pages that belong to nobody else.
    pub data: DmaBuffer,
}

impl Memory {
    /// Takes the memory; once.
    pub fn new() -> Option<Self> {
        Some(Self {
            rings: DmaBuffer::pages(MAX_QUEUES)?,
            data: DmaBuffer::pages(DATA_PAGES)?,
        })
    }
}

/// Where the parts of a ring are, and how long it is.
#[derive(Clone, Copy)]
pub struct Ring {
    pub size: u16,
    pub descriptors: u64,
    pub avail: u64,
    pub used: u64,
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

    /// A ring as a driver should have it.
    pub fn honest_ring(&self, queue: u16) -> Ring {
        let page = self.memory.rings.address() + (usize::from(queue) * PAGE_BYTES) as u64;
        Ring {
            size: SIZE,
            descriptors: page,
            avail: page + AVAIL as u64,
            used: page + USED as u64,
        }
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

    /// Writes descriptor `index` of a queue.
    pub fn put(&self, queue: u16, index: u16, desc: Desc) {
        let at = usize::from(queue) * PAGE_BYTES + usize::from(index) * 16;
        put_at(&self.memory.rings, at, desc);
    }

    /// Links `descs` from descriptor `head` on.
    pub fn put_chain(&self, queue: u16, head: u16, descs: &[Desc]) {
        for (index, desc) in (head..).zip(descs) {
            let mut desc = *desc;
            if usize::from(index - head) + 1 < descs.len() {
                desc.flags |= NEXT;
                desc.next = index + 1;
            }
            self.put(queue, index, desc);
        }
    }

    /// Makes `head` available.
    pub fn offer(&mut self, queue: u16, head: u16) {
        let index = usize::from(queue);
        let slot = usize::from(self.avail[index] % SIZE);
        let avail = index * PAGE_BYTES + AVAIL;
        self.memory.rings.write16(avail + 4 + slot * 2, head);
        self.avail[index] = self.avail[index].wrapping_add(1);
        self.set_avail(queue, self.avail[index]);
    }

    /// Writes the index of the available ring.
    pub fn set_avail(&mut self, queue: u16, value: u16) {
        let index = usize::from(queue);
        self.avail[index] = value;
        // The device must see the entries before the index that covers them.
        fence(Ordering::SeqCst);
        self.memory
            .rings
            .write16(index * PAGE_BYTES + AVAIL + 2, value);
        fence(Ordering::SeqCst);
    }

    /// The index of the available ring as it was written last.
    pub fn avail(&self, queue: u16) -> u16 {
        self.avail[usize::from(queue)]
    }

    /// Writes the index of the used ring, which is the device's.
    pub fn set_used(&self, queue: u16, value: u16) {
        let at = usize::from(queue) * PAGE_BYTES + USED + 2;
        self.memory.rings.write16(at, value);
    }

    pub fn kick(&self, queue: u16) {
        fence(Ordering::SeqCst);
        self.common.write16(QUEUE_SELECT, queue);
        let offset = usize::from(self.common.read16(QUEUE_NOTIFY_OFF)) * self.kick_bytes;
        self.notify.write16(offset, queue);
    }

    /// The next chain that came back: its head, and the bytes that were written.
    pub fn take_used(&mut self, queue: u16) -> Option<(u32, u32)> {
        let index = usize::from(queue);
        let used = index * PAGE_BYTES + USED;
        if self.memory.rings.read16(used + 2) == self.seen[index] {
            return None;
        }
        fence(Ordering::SeqCst);
        let slot = usize::from(self.seen[index] % SIZE);
        self.seen[index] = self.seen[index].wrapping_add(1);
        let mut entry = [0; 8];
        self.memory.rings.read(used + 4 + slot * 8, &mut entry);
        let [a, b, c, d, e, f, g, h] = entry;
        let head = u32::from_le_bytes([a, b, c, d]);
        Some((head, u32::from_le_bytes([e, f, g, h])))
    }

    /// Offers one chain in the first descriptors and tells the device.
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

    /// Whether the device still serves, without a reset.
    pub fn still_serves(&mut self) -> Result<Outcome, DeviceError> {
        if self.needs_reset() {
            return Ok(Outcome::NeedsReset);
        }
        super::honest::request(self)?;
        Ok(Outcome::Ignored)
    }

    /// A place in the buffers.
    pub fn data(&self, offset: u64) -> u64 {
        self.memory.data.address() + offset
    }

    /// Writes a descriptor into the buffers, for indirect tables.
    pub fn put_data(&self, offset: usize, desc: Desc) {
        put_at(&self.memory.data, offset, desc);
    }
}

fn put_at(memory: &DmaBuffer, at: usize, desc: Desc) {
    memory.write(at, &desc.address.to_le_bytes());
    memory.write(at + 8, &desc.bytes.to_le_bytes());
    memory.write16(at + 12, desc.flags);
    memory.write16(at + 14, desc.next);
}
