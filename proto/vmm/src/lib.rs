//! The private protocol between the node agent and one `kvmlet-vmm`, and the header of persisted
//! payloads.
//!
//! Owns the messages ([`v1`]), how a frame is laid out on the wire ([`FrameHeader`],
//! [`FrameDecoder`]) and how a payload is laid out in a file ([`payload`]). Everything here is pure:
//! no sockets, no files. The agent (tokio) and the VMM (blocking) put the same pieces on their own
//! transport.

#![forbid(unsafe_code)]

mod device;
mod frame;
pub mod payload;
pub mod v1;

pub use frame::{
    Descriptors, FRAME_HEADER_BYTES, FrameDecoder, FrameError, FrameHeader, MAX_BODY_BYTES,
    MAX_DESCRIPTORS, encode_frame,
};

/// Lowest protocol version that this release speaks, on either side.
pub const PROTOCOL_MIN: u32 = 1;

/// Highest protocol version that this release speaks, on either side.
pub const PROTOCOL_MAX: u32 = 1;

/// The highest version that both sides speak, if there is one.
#[must_use]
pub fn common_version(peer_min: u32, peer_max: u32) -> Option<u32> {
    let highest = peer_max.min(PROTOCOL_MAX);
    (highest >= PROTOCOL_MIN && highest >= peer_min).then_some(highest)
}

#[cfg(test)]
mod tests {
    use super::common_version;

    #[test]
    fn versions_meet_at_the_highest_common_one_or_not_at_all() {
        assert_eq!(common_version(1, 1), Some(1));
        assert_eq!(common_version(1, 7), Some(1));
        assert_eq!(common_version(2, 7), None);
        assert_eq!(common_version(0, 0), None);
    }
}
