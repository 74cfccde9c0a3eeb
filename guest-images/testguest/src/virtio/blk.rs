//! The block device's test: identity, write, flush, read back in one and in several segments, many
//! requests at once, and a request beyond the end.

use super::queue::{Queue, Segment};
use super::{Device, DeviceError, queue_vector};
use crate::clock::{Clock, Moment};
use crate::memory::DmaBuffer;
use crate::pci::Function;
use testguest_lib::command_line::Mode;

pub(super) const SECTOR_BYTES: u64 = 512;
const FEATURE_SEG_MAX: u64 = 1 << 2;
const FEATURE_READ_ONLY: u64 = 1 << 5;
pub(super) const FEATURE_FLUSH: u64 = 1 << 9;

pub(super) const CAPACITY: usize = 0;

const TYPE_IN: u32 = 0;
pub(super) const TYPE_OUT: u32 = 1;
pub(super) const TYPE_FLUSH: u32 = 4;
const TYPE_GET_ID: u32 = 8;
pub(super) const STATUS_OK: u8 = 0;
const STATUS_IOERR: u8 = 1;
/// What the status byte holds until the device writes it.
const STATUS_UNTOUCHED: u8 = 0xaa;

const HEADER_BYTES: usize = 16;
pub(super) const ID_BYTES: usize = 20;
/// Data of one request.
pub(super) const CHUNK_BYTES: u64 = CHUNK_SIZE as u64;
const CHUNK_SIZE: usize = 4096;
/// Segments of a request's data at most; header and status come on top.
const MAX_SEGMENTS: usize = 4;
const CHAIN_DESCRIPTORS: u16 = 8;
/// Requests in flight at most.
const MAX_DEPTH: u16 = 8;
const TIMEOUT_MS: u64 = 10_000;

/// What the test found out about a device that passed.
pub struct BlkSummary {
    /// Size of the device.
    pub capacity_bytes: u64,
    /// The device's id string, padded by zeros.
    pub id: [u8; ID_BYTES],
    /// Bytes written and verified; 0 on a read-only device.
    pub verified_bytes: u64,
    /// The device refuses writes.
    pub read_only: bool,
    /// It has a flush command.
    pub flush: bool,
    /// Interrupts taken.
    pub irqs: u32,
}

/// One request's place: header, data, status, and its descriptors from `head` on.
pub(super) struct Slot {
    head: u16,
    header: DmaBuffer,
    pub(super) data: DmaBuffer,
    status: DmaBuffer,
}

pub(super) struct Disk<'a> {
    pub(super) queue: Queue<'a>,
    slots: [Option<Slot>; MAX_DEPTH as usize],
    clock: &'a Clock,
}

/// Tests a block device. Overwrites its first `kib` KiB unless it is read-only.
pub fn test(
    function: &Function,
    clock: &Clock,
    mode: Mode,
    kib: u64,
) -> Result<BlkSummary, DeviceError> {
    let wanted = FEATURE_SEG_MAX | FEATURE_READ_ONLY | FEATURE_FLUSH;
    let mut device = Device::open(function, clock, mode, wanted)?;
    let queue = device.queue(0, queue_vector(0))?;
    device.start();
    let irqs_before = queue.irqs();
    let sectors = device.configuration.read64(CAPACITY);
    let capacity_bytes = sectors.saturating_mul(SECTOR_BYTES);
    let read_only = device.features & FEATURE_READ_ONLY != 0;
    let flush = device.features & FEATURE_FLUSH != 0;
    let mut disk = Disk::new(queue, clock)?;

    let id = disk.id()?;
    disk.read_beyond_end(sectors)?;
    let verified_bytes = if read_only {
        disk.write_is_refused()?;
        0
    } else {
        let chunks = (kib * 1024).min(capacity_bytes) / CHUNK_BYTES;
        disk.write_all(chunks)?;
        if flush {
            disk.run(TYPE_FLUSH, 0, 0, 0, STATUS_OK)?;
        }
        disk.verify_all(chunks)?;
        disk.verify_in_segments(chunks)?;
        chunks * CHUNK_BYTES
    };
    let irqs = disk.queue.irqs().wrapping_sub(irqs_before);
    Ok(BlkSummary {
        capacity_bytes,
        id,
        verified_bytes,
        read_only,
        flush,
        irqs,
    })
}

impl<'a> Disk<'a> {
    pub(super) fn new(queue: Queue<'a>, clock: &'a Clock) -> Result<Self, DeviceError> {
        let depth = (queue.size() / CHAIN_DESCRIPTORS).min(MAX_DEPTH);
        let mut slots = [const { None }; MAX_DEPTH as usize];
        for (slot, index) in slots.iter_mut().zip(0..depth) {
            *slot = Slot::new(index * CHAIN_DESCRIPTORS);
        }
        if slots[0].is_none() {
            return Err(DeviceError::Missing("room for one request"));
        }
        Ok(Self {
            queue,
            slots,
            clock,
        })
    }

    pub(super) fn depth(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    pub(super) fn slot(&self, index: usize) -> Result<&Slot, DeviceError> {
        self.slots
            .get(index)
            .and_then(Option::as_ref)
            .ok_or(DeviceError::Missing("request slot"))
    }

    fn deadline(&self) -> Moment {
        self.clock.after_ms(TIMEOUT_MS)
    }

    /// Puts a request into slot `index`; its data of `bytes` is cut into `segments`.
    pub(super) fn submit(
        &mut self,
        index: usize,
        kind: u32,
        sector: u64,
        bytes: u64,
        segments: usize,
    ) -> Result<(), DeviceError> {
        let slot = self.slot(index)?;
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&kind.to_le_bytes());
        header[8..].copy_from_slice(&sector.to_le_bytes());
        slot.header.write(0, &header);
        slot.status.write(0, &[STATUS_UNTOUCHED]);

        let part = |address, bytes, device_writes| Segment {
            address,
            bytes,
            device_writes,
        };
        let mut chain = [part(slot.header.address(), 16, false); MAX_SEGMENTS + 2];
        let mut length = 1;
        for piece in pieces(bytes, segments) {
            let address = slot.data.address() + piece.start;
            let bytes = u32::try_from(piece.end - piece.start).unwrap_or(u32::MAX);
            chain[length] = part(address, bytes, kind != TYPE_OUT);
            length += 1;
        }
        chain[length] = part(slot.status.address(), 1, true);
        let head = slot.head;
        self.queue.submit(head, &chain[..=length]);
        Ok(())
    }

    /// Waits for `count` requests in slots 0.. and checks that each ended with `status`.
    pub(super) fn finish(&mut self, count: usize, status: u8) -> Result<(), DeviceError> {
        self.end(count, |got| {
            if got == status {
                return Ok(());
            }
            let (expected, got) = (u64::from(status), u64::from(got));
            Err(DeviceError::Mismatch {
                what: "block status",
                expected,
                got,
            })
        })
    }

    /// Waits for `count` requests in slots 0.., whatever comes of them: the first status that is not
    /// [`STATUS_OK`], if there is one.
    pub(super) fn outcome(&mut self, count: usize) -> Result<u8, DeviceError> {
        let mut outcome = STATUS_OK;
        self.end(count, |got| {
            if outcome == STATUS_OK {
                outcome = got;
            }
            Ok(())
        })?;
        Ok(outcome)
    }

    /// Waits for `count` requests in slots 0.., whose statuses `judge` is shown.
    fn end(
        &mut self,
        count: usize,
        mut judge: impl FnMut(u8) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let deadline = self.deadline();
        for _ in 0..count {
            let used = self.queue.wait_used(deadline, "block request")?;
            let slot = self.slot(usize::from(used.head / CHAIN_DESCRIPTORS))?;
            if slot.head != used.head {
                return Err(DeviceError::WrongDescriptor(u32::from(used.head)));
            }
            let mut got = [0];
            slot.status.read(0, &mut got);
            judge(got[0])?;
        }
        self.queue.confirm_irq(self.deadline(), "block request")
    }

    /// One request in slot 0, start to end.
    pub(super) fn run(
        &mut self,
        kind: u32,
        sector: u64,
        bytes: u64,
        segments: usize,
        status: u8,
    ) -> Result<(), DeviceError> {
        self.submit(0, kind, sector, bytes, segments)?;
        self.queue.kick();
        self.finish(1, status)
    }

    pub(super) fn id(&mut self) -> Result<[u8; ID_BYTES], DeviceError> {
        self.run(TYPE_GET_ID, 0, ID_BYTES as u64, 1, STATUS_OK)?;
        let mut id = [0; ID_BYTES];
        self.slot(0)?.data.read(0, &mut id);
        Ok(id)
    }

    fn read_beyond_end(&mut self, sectors: u64) -> Result<(), DeviceError> {
        self.run(TYPE_IN, sectors, CHUNK_BYTES, 1, STATUS_IOERR)?;
        // An end that lies beyond, and one that overflows.
        self.run(
            TYPE_IN,
            sectors.saturating_sub(1),
            CHUNK_BYTES,
            1,
            STATUS_IOERR,
        )?;
        self.run(TYPE_IN, u64::MAX - 1, CHUNK_BYTES, 1, STATUS_IOERR)
    }

    fn write_is_refused(&mut self) -> Result<(), DeviceError> {
        self.run(TYPE_OUT, 0, CHUNK_BYTES, 1, STATUS_IOERR)
    }

    fn write_all(&mut self, chunks: u64) -> Result<(), DeviceError> {
        self.in_batches(
            chunks,
            TYPE_OUT,
            |slot, chunk| {
                slot.data.write(0, &pattern(chunk));
                Ok(())
            },
            |_, _| Ok(()),
        )
    }

    fn verify_all(&mut self, chunks: u64) -> Result<(), DeviceError> {
        self.in_batches(chunks, TYPE_IN, Slot::clear, Slot::verify)
    }

    /// Submits as many requests as there are slots with one kick, waits for all, and so on.
    fn in_batches(
        &mut self,
        chunks: u64,
        kind: u32,
        prepare: impl Fn(&Slot, u64) -> Result<(), DeviceError>,
        check: impl Fn(&Slot, u64) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let mut first = 0;
        while first < chunks {
            let last = chunks.min(first + self.depth() as u64);
            for (index, chunk) in (first..last).enumerate() {
                prepare(self.slot(index)?, chunk)?;
                self.submit(index, kind, sector_of(chunk), CHUNK_BYTES, 1)?;
            }
            self.queue.kick();
            let count = (first..last).enumerate().count();
            self.finish(count, STATUS_OK)?;
            for (index, chunk) in (first..last).enumerate() {
                check(self.slot(index)?, chunk)?;
            }
            first = last;
        }
        Ok(())
    }

    /// Reads chunks cut into unequal segments, one after another.
    fn verify_in_segments(&mut self, chunks: u64) -> Result<(), DeviceError> {
        for (chunk, segments) in (0..chunks).zip(1..=MAX_SEGMENTS) {
            self.slot(0)?.clear(chunk)?;
            self.run(TYPE_IN, sector_of(chunk), CHUNK_BYTES, segments, STATUS_OK)?;
            self.slot(0)?.verify(chunk)?;
        }
        Ok(())
    }
}

impl Slot {
    fn new(head: u16) -> Option<Self> {
        Some(Self {
            head,
            header: DmaBuffer::new(HEADER_BYTES)?,
            data: DmaBuffer::new(CHUNK_SIZE)?,
            status: DmaBuffer::new(1)?,
        })
    }

    fn clear(&self, _chunk: u64) -> Result<(), DeviceError> {
        self.data.write(0, &[0; CHUNK_SIZE]);
        Ok(())
    }

    fn verify(&self, chunk: u64) -> Result<(), DeviceError> {
        let mut data = [0; CHUNK_SIZE];
        self.data.read(0, &mut data);
        let expected = pattern(chunk);
        let wrong = data
            .iter()
            .zip(&expected)
            .zip(0u64..)
            .find(|((got, wanted), _)| got != wanted);
        match wrong {
            None => Ok(()),
            Some((_, offset)) => Err(DeviceError::Mismatch {
                what: "first wrong disk offset",
                expected: u64::MAX,
                got: chunk * CHUNK_BYTES + offset,
            }),
        }
    }
}

pub(super) fn sector_of(chunk: u64) -> u64 {
    chunk * (CHUNK_BYTES / SECTOR_BYTES)
}

/// Content of a chunk: no two chunks and no two sectors alike.
pub(super) fn pattern(chunk: u64) -> [u8; CHUNK_SIZE] {
    let mut data = [0; CHUNK_SIZE];
    for (word, position) in data.chunks_exact_mut(8).zip(0u64..) {
        let mixed = (chunk << 32 | position)
            .wrapping_add(1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word.copy_from_slice(&mixed.to_le_bytes());
    }
    data
}

/// Cuts `bytes` into `count` pieces: whole sectors first, the rest last.
fn pieces(bytes: u64, count: usize) -> impl Iterator<Item = core::ops::Range<u64>> {
    let count = count.min(MAX_SEGMENTS);
    (1..=count as u64).map(move |number| {
        let start = (number - 1) * SECTOR_BYTES;
        let end = if number == count as u64 {
            bytes
        } else {
            number * SECTOR_BYTES
        };
        start..end
    })
}
