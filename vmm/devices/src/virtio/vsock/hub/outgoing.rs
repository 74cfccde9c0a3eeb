//! Packets for the guest, one connection after the other.

use super::Hub;
use crate::virtio::vsock::connection::Key;
use crate::virtio::vsock::packet::{HEADER_BYTES, Header, MAX_PAYLOAD_BYTES, Operation};

/// A packet for the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Outgoing {
    /// Its length, header and all.
    pub(in super::super) bytes: usize,
    /// Its connection, unless that is no more.
    pub(in super::super) key: Option<Key>,
}

impl Hub {
    /// Whether there may be packets for the guest.
    pub(in super::super) fn has_packets(&self) -> bool {
        !self.resets.is_empty() || !self.queue.is_empty()
    }

    /// Makes the next packet, with at most `room` bytes, which is more than a header has. It can be
    /// [read](Self::packet) until the next call.
    pub(in super::super) fn next_packet(&mut self, room: usize) -> Option<Outgoing> {
        loop {
            if let Some(header) = self.resets.pop_front() {
                return Some(self.write(&header, None));
            }
            let key = self.queue.pop_front()?;
            if let Some(connection) = self.connections.get_mut(&key) {
                connection.is_queued = false;
            }
            let made = self.make(key, room);
            // Behind all others, if there is more.
            self.touch(key);
            if made.is_some() {
                return made;
            }
        }
    }

    /// The first `bytes` of the packet that was made last.
    pub(in super::super) fn packet(&self, bytes: usize) -> &[u8] {
        self.packet.get(..bytes).unwrap_or_default()
    }

    /// The next packet of a connection.
    fn make(&mut self, key: Key, room: usize) -> Option<Outgoing> {
        loop {
            let connection = self.connections.get_mut(&key)?;
            let operation = connection.next()?;
            let mut payload_bytes = 0;
            if operation == Operation::Data {
                let allowed = usize::try_from(connection.credit.available()).unwrap_or(usize::MAX);
                let most = allowed
                    .min(room.saturating_sub(HEADER_BYTES))
                    .min(MAX_PAYLOAD_BYTES);
                self.packet.resize(HEADER_BYTES + MAX_PAYLOAD_BYTES, 0);
                let end = HEADER_BYTES + most;
                let payload = self.packet.get_mut(HEADER_BYTES..end)?;
                match connection.read(payload) {
                    // It says by its `next` what that means.
                    Ok(0) => continue,
                    Ok(count) => payload_bytes = count,
                    Err(_) => {
                        self.reset(key);
                        return None;
                    }
                }
            }
            let flags = connection.take_due(operation);
            let (buf_alloc, fwd_cnt) = connection.credit.announce();
            let header = Header {
                operation: operation.number(),
                payload_bytes: u32::try_from(payload_bytes).ok()?,
                flags,
                buf_alloc,
                fwd_cnt,
                ..self.header(key)
            };
            return Some(self.write(&header, Some(key)));
        }
    }

    /// Writes a header before the payload.
    fn write(&mut self, header: &Header, key: Option<Key>) -> Outgoing {
        self.packet.resize(HEADER_BYTES + MAX_PAYLOAD_BYTES, 0);
        if let Some(start) = self.packet.first_chunk_mut() {
            *start = header.encode();
        }
        let payload = usize::try_from(header.payload_bytes).unwrap_or(0);
        Outgoing {
            bytes: HEADER_BYTES + payload,
            key,
        }
    }
}
