//! Headers of the socket device's packets (virtio 1.2, 5.10.6), and the data of its tests.

use crate::bytes::{u16_at, u32_at, u64_at};

/// Length of a header.
pub const HEADER_BYTES: usize = 44;
/// The only type of socket here.
pub const STREAM: u16 = 1;
/// The host's address.
pub const HOST_CID: u64 = 2;

/// Operations.
pub const REQUEST: u16 = 1;
/// Answers a request.
pub const RESPONSE: u16 = 2;
/// Ends a connection.
pub const RESET: u16 = 3;
/// Ends one direction or both.
pub const SHUTDOWN: u16 = 4;
/// Carries data.
pub const DATA: u16 = 5;
/// Tells of room.
pub const CREDIT_UPDATE: u16 = 6;
/// Asks for such.
pub const CREDIT_REQUEST: u16 = 7;

/// Shutdown flags: the sender sends no more.
pub const SENDS_NO_MORE: u32 = 2;
/// Both.
pub const DONE: u32 = 3;

/// A header, as far as both sides do not know it anyway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Port of the sender.
    pub source_port: u32,
    /// Port of the receiver.
    pub destination_port: u32,
    /// Bytes that follow the header.
    pub payload_bytes: u32,
    /// One of the operations.
    pub operation: u16,
    /// Shutdown flags.
    pub flags: u32,
    /// The sender's buffer for this connection.
    pub buf_alloc: u32,
    /// Bytes that have left that buffer.
    pub fwd_cnt: u32,
}

impl Header {
    /// The header of a packet to the host.
    pub fn encode(&self, guest_cid: u64) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&guest_cid.to_le_bytes());
        bytes[8..16].copy_from_slice(&HOST_CID.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.source_port.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.destination_port.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[28..30].copy_from_slice(&STREAM.to_le_bytes());
        bytes[30..32].copy_from_slice(&self.operation.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.flags.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.buf_alloc.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.fwd_cnt.to_le_bytes());
        bytes
    }

    /// Reads the header of a packet from the host; `None` when it is from or to somebody else.
    pub fn decode(bytes: &[u8; HEADER_BYTES], guest_cid: u64) -> Option<Self> {
        let addresses = (u64_at(bytes, 0)?, u64_at(bytes, 8)?, u16_at(bytes, 28)?);
        if addresses != (HOST_CID, guest_cid, STREAM) {
            return None;
        }
        Some(Self {
            source_port: u32_at(bytes, 16)?,
            destination_port: u32_at(bytes, 20)?,
            payload_bytes: u32_at(bytes, 24)?,
            operation: u16_at(bytes, 30)?,
            flags: u32_at(bytes, 32)?,
            buf_alloc: u32_at(bytes, 36)?,
            fwd_cnt: u32_at(bytes, 40)?,
        })
    }
}

/// The byte at `offset` of the data that the guest sends.
pub fn pattern(offset: u64) -> u8 {
    (offset % 251).to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_the_host_are_read_and_others_are_not() {
        let header = Header {
            source_port: 1,
            destination_port: 2,
            payload_bytes: 3,
            operation: DATA,
            flags: 4,
            buf_alloc: 5,
            fwd_cnt: 6,
        };
        let mut bytes = header.encode(42);
        assert_eq!(Header::decode(&bytes, 42), None);
        let (source, rest) = bytes.split_at_mut(8);
        source.swap_with_slice(&mut rest[..8]);
        assert_eq!(Header::decode(&bytes, 42), Some(header));
        assert_eq!(Header::decode(&bytes, 43), None);
    }
}
