//! The device's queues, and packets in its buffers.

use super::super::queue::{Queue, Segment};
use crate::clock::{Clock, Moment};
use crate::memory::DmaBuffer;
use crate::virtio::DeviceError;
use testguest_lib::vsock_packet::{HEADER_BYTES, Header};

/// Data of one packet at most, and the buffer of each connection: so small that credit counts.
pub(super) const WINDOW_BYTES_U32: u32 = 4096;
pub(super) const WINDOW_BYTES: usize = WINDOW_BYTES_U32 as usize;
const RECEIVE_BUFFERS: u16 = 16;
const BUFFER_BYTES: usize = HEADER_BYTES + WINDOW_BYTES;
/// Nothing that a test waits for takes so long.
const PATIENCE_MS: u64 = 30_000;

/// What each side may still send on one connection.
#[derive(Clone, Copy, Default)]
pub(super) struct Account {
    pub(super) host_buffer: u32,
    pub(super) host_forwarded: u32,
    pub(super) sent: u32,
    pub(super) received: u32,
    pub(super) forwarded: u32,
}

impl Account {
    /// Takes what a packet of the host says.
    pub(super) fn update(&mut self, header: &Header) {
        self.host_buffer = header.buf_alloc;
        self.host_forwarded = header.fwd_cnt;
    }

    /// Bytes that may be sent now.
    pub(super) fn room(&self) -> usize {
        let in_it = self.sent.wrapping_sub(self.host_forwarded);
        self.host_buffer.saturating_sub(in_it) as usize
    }

    /// Counts data of the host, which must keep to its credit.
    pub(super) fn receive(&mut self, bytes: u32) -> Result<(), DeviceError> {
        let held = self.received.wrapping_sub(self.forwarded);
        if held.saturating_add(bytes) > WINDOW_BYTES_U32 {
            return Err(DeviceError::Mismatch {
                what: "data beyond the credit given",
                expected: u64::from(WINDOW_BYTES_U32),
                got: u64::from(held) + u64::from(bytes),
            });
        }
        self.received = self.received.wrapping_add(bytes);
        Ok(())
    }
}

/// A packet of the host, still in its buffer.
pub(super) struct Packet {
    pub(super) header: Header,
    pub(super) head: u16,
}

pub(super) struct Queues<'a> {
    pub(super) receive: Queue<'a>,
    pub(super) transmit: Queue<'a>,
    pub(super) receive_memory: DmaBuffer,
    pub(super) transmit_memory: DmaBuffer,
    pub(super) cid: u64,
    pub(super) clock: &'a Clock,
}

impl<'a> Queues<'a> {
    pub(super) fn new(
        receive: Queue<'a>,
        transmit: Queue<'a>,
        cid: u64,
        clock: &'a Clock,
    ) -> Result<Self, DeviceError> {
        let buffers = RECEIVE_BUFFERS.min(receive.size());
        let memory =
            |bytes| DmaBuffer::new(bytes).ok_or(DeviceError::Missing("memory for packets"));
        let mut queues = Self {
            receive_memory: memory(usize::from(buffers) * BUFFER_BYTES)?,
            transmit_memory: memory(BUFFER_BYTES)?,
            receive,
            transmit,
            cid,
            clock,
        };
        for index in 0..buffers {
            queues.offer_buffer(index);
        }
        queues.receive.kick();
        Ok(queues)
    }

    pub(super) fn patience(&self) -> Moment {
        self.clock.after_ms(PATIENCE_MS)
    }

    pub(super) fn offer_buffer(&mut self, index: u16) {
        let offset = usize::from(index) * BUFFER_BYTES;
        let segment = Segment {
            address: self.receive_memory.address() + offset as u64,
            bytes: u32::try_from(BUFFER_BYTES).unwrap_or(0),
            device_writes: true,
        };
        self.receive.submit(index, &[segment]);
    }

    /// Waits for the next packet.
    pub(super) fn next(&mut self) -> Result<Packet, DeviceError> {
        let used = self.receive.wait_used(self.patience(), "packet")?;
        let mut bytes = [0; HEADER_BYTES];
        let offset = usize::from(used.head) * BUFFER_BYTES;
        self.receive_memory.read(offset, &mut bytes);
        let header = Header::decode(&bytes, self.cid).ok_or(DeviceError::Refused(
            "to keep to the host's address and mine",
        ))?;
        let expected = HEADER_BYTES as u64 + u64::from(header.payload_bytes);
        if u64::from(used.bytes) != expected {
            return Err(DeviceError::Mismatch {
                what: "bytes of a packet",
                expected,
                got: u64::from(used.bytes),
            });
        }
        Ok(Packet {
            header,
            head: used.head,
        })
    }

    /// Copies the data of a packet into `data`, which is as long.
    pub(super) fn read(&self, packet: &Packet, data: &mut [u8]) {
        let offset = usize::from(packet.head) * BUFFER_BYTES + HEADER_BYTES;
        self.receive_memory.read(offset, data);
    }

    /// Gives the buffer of a packet back.
    pub(super) fn done_with(&mut self, packet: &Packet) {
        self.offer_buffer(packet.head);
        self.receive.kick();
    }

    /// Sends a packet; `account` is that of its connection.
    pub(super) fn send(
        &mut self,
        header: Header,
        account: &mut Account,
        payload: &[u8],
    ) -> Result<(), DeviceError> {
        let payload_bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        account.sent = account.sent.wrapping_add(payload_bytes);
        let header = Header {
            payload_bytes,
            buf_alloc: WINDOW_BYTES_U32,
            fwd_cnt: account.forwarded,
            ..header
        };
        self.transmit_memory.write(0, &header.encode(self.cid));
        self.transmit_memory.write(HEADER_BYTES, payload);
        let address = self.transmit_memory.address();
        let part = |offset: usize, bytes: usize| Segment {
            address: address + offset as u64,
            bytes: u32::try_from(bytes).unwrap_or(0),
            device_writes: false,
        };
        // In one segment or in two, by turns.
        if payload.len().is_multiple_of(2) {
            let whole = part(0, HEADER_BYTES + payload.len());
            self.transmit.submit(0, &[whole]);
        } else {
            let data = part(HEADER_BYTES, payload.len());
            self.transmit.submit(0, &[part(0, HEADER_BYTES), data]);
        }
        self.transmit.kick();
        let deadline = self.patience();
        self.transmit.wait_used(deadline, "transmission")?;
        self.transmit.confirm_irq(deadline, "transmission")
    }
}
