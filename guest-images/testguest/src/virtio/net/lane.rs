//! A pair of queues and the memory of its frames.

use super::super::queue::{Queue, Segment, Used};
use super::super::{Device, DeviceError, queue_vector};
use super::packet::{FrameBuffer, HEADER_BYTES, MAX_PACKET_BYTES, TRANSMIT_TIMEOUT_MS};
use crate::clock::Clock;
use crate::memory::DmaBuffer;

/// Receive buffers of a pair.
const BUFFERS: u16 = 48;
/// Where the header says over how many buffers a frame is spread.
const NUM_BUFFERS: usize = 10;

/// A pair of queues.
pub struct Lane<'a> {
    receive: Queue<'a>,
    /// Public for tests that send more than a frame at a time.
    pub transmit: Queue<'a>,
    receive_memory: DmaBuffer,
    transmit_memory: DmaBuffer,
    buffer_bytes: u16,
    /// Interrupts of the receive queue when it was looked at last.
    seen: u32,
    clock: &'a Clock,
}

impl<'a> Lane<'a> {
    /// Sets up pair number `index` of a device, with receive buffers of this size, none offered yet.
    pub fn new(
        device: &mut Device<'a>,
        clock: &'a Clock,
        index: u8,
        buffer_bytes: u16,
    ) -> Result<Self, DeviceError> {
        let first = u16::from(index) * 2;
        let receive = device.queue(first, queue_vector(index * 2))?;
        let transmit = device.queue(first + 1, queue_vector(index * 2 + 1))?;
        let memory = |bytes| DmaBuffer::new(bytes).ok_or(DeviceError::Missing("memory for frames"));
        Ok(Self {
            receive_memory: memory(usize::from(BUFFERS) * usize::from(buffer_bytes))?,
            transmit_memory: memory(MAX_PACKET_BYTES)?,
            receive,
            transmit,
            buffer_bytes,
            seen: 0,
            clock,
        })
    }

    /// Offers all receive buffers, once the device is ready.
    pub fn offer_all(&mut self) {
        for index in 0..BUFFERS.min(self.receive.size()) {
            self.offer(index);
        }
        self.receive.kick();
    }

    /// Interrupts of both queues.
    pub fn irqs(&self) -> u32 {
        self.receive.irqs().wrapping_add(self.transmit.irqs())
    }

    fn offer(&mut self, index: u16) {
        let offset = u64::from(index) * u64::from(self.buffer_bytes);
        let segment = Segment {
            address: self.receive_memory.address() + offset,
            bytes: self.buffer_bytes.into(),
            device_writes: true,
        };
        self.receive.submit(index, &[segment]);
    }

    /// Where a packet of so many bytes is as segments: in one or in two, by turns.
    fn segments(&self, frame_bytes: usize) -> ([Segment; 2], usize) {
        let bytes = |length: usize| u32::try_from(length).unwrap_or(0);
        let part = |offset: usize, length: usize| Segment {
            address: self.transmit_memory.address() + offset as u64,
            bytes: bytes(length),
            device_writes: false,
        };
        if frame_bytes.is_multiple_of(2) {
            let whole = part(0, HEADER_BYTES + frame_bytes);
            ([whole, whole], 1)
        } else {
            let header = part(0, HEADER_BYTES);
            ([header, part(HEADER_BYTES, frame_bytes)], 2)
        }
    }

    /// Makes a packet available as the chain from descriptor `head` on, without a kick.
    pub fn submit(&mut self, head: u16, header: [u8; HEADER_BYTES], frame: &[u8]) {
        self.transmit_memory.write(0, &header);
        self.transmit_memory.write(HEADER_BYTES, frame);
        let (segments, count) = self.segments(frame.len());
        self.transmit.submit(head, &segments[..count]);
    }

    /// Sends a packet and waits until the device is done with it.
    pub fn send(&mut self, header: [u8; HEADER_BYTES], frame: &[u8]) -> Result<(), DeviceError> {
        self.submit(0, header, frame);
        self.transmit.kick();
        let deadline = self.clock.after_ms(TRANSMIT_TIMEOUT_MS);
        self.transmit.wait_used(deadline, "transmission")?;
        self.transmit.confirm_irq(deadline, "transmission")
    }

    /// The next packet, header and all, if one is there: its length and over how many buffers it was
    /// spread.
    pub fn poll(&mut self, packet: &mut FrameBuffer) -> Result<Option<(usize, u16)>, DeviceError> {
        self.seen = self.receive.irqs();
        match self.receive.take_used()? {
            None => Ok(None),
            Some(first) => self.gather(first, packet).map(Some),
        }
    }

    /// Sleeps until something may have come since the last [`poll`](Self::poll).
    pub fn wait(&self, deadline: crate::clock::Moment) {
        // That time is up is noticed by whoever polls again.
        self.receive.sleep(self.seen, deadline).unwrap_or_default();
    }

    fn gather(
        &mut self,
        first: Used,
        packet: &mut FrameBuffer,
    ) -> Result<(usize, u16), DeviceError> {
        let mut length = self.take(first, packet, 0)?;
        let count = u16::from_le_bytes([packet[NUM_BUFFERS], packet[NUM_BUFFERS + 1]]);
        for _ in 1..count {
            let next = self.receive.take_used()?;
            let next = next.ok_or(DeviceError::Missing("a buffer of a merged frame"))?;
            length = self.take(next, packet, length)?;
        }
        self.receive.kick();
        Ok((length, count))
    }

    /// Copies a buffer behind what there is of a packet and offers it again.
    fn take(
        &mut self,
        used: Used,
        packet: &mut FrameBuffer,
        length: usize,
    ) -> Result<usize, DeviceError> {
        let bytes = usize::try_from(used.bytes).unwrap_or(usize::MAX);
        let wrong = DeviceError::Mismatch {
            what: "bytes received",
            expected: self.buffer_bytes.into(),
            got: used.bytes.into(),
        };
        if bytes > usize::from(self.buffer_bytes) || used.head >= BUFFERS {
            return Err(wrong);
        }
        let end = length + bytes;
        let part = packet.get_mut(length..end).ok_or(wrong)?;
        let offset = usize::from(used.head) * usize::from(self.buffer_bytes);
        self.receive_memory.read(offset, part);
        self.offer(used.head);
        Ok(end)
    }
}
