//! What a frame may carry, and why one could not be sent or received.

use std::io;

/// Longest body of a frame.
pub const MAX_BODY_BYTES: usize = 1 << 20;

/// Most descriptors of a frame.
pub const MAX_DESCRIPTORS: usize = 64;

/// Why a frame could not be sent or received.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The body is longer than a frame can carry.
    #[error("frame body of {bytes} bytes, at most {MAX_BODY_BYTES} are allowed")]
    BodyTooLong {
        /// Its length.
        bytes: usize,
    },
    /// More descriptors than a frame can carry.
    #[error("frame with {count} descriptors, at most {MAX_DESCRIPTORS} are allowed")]
    TooManyDescriptors {
        /// Their number.
        count: usize,
    },
    /// The descriptors that came are not those that the header announced.
    #[error("frame announced {announced} descriptors and came with {received}")]
    DescriptorCount {
        /// What the header says.
        announced: usize,
        /// Number that came.
        received: usize,
    },
    /// The header's reserved field is not zero: the peer speaks something else.
    #[error("reserved header field is {value}, must be 0")]
    Reserved {
        /// Value of the field.
        value: u16,
    },
    /// The kernel could not hand over all descriptors (the descriptor limit was reached).
    #[error("descriptors were lost on the way: descriptor limit reached")]
    DescriptorsLost,
    /// The peer closed the connection within a frame.
    #[error("connection closed within a frame")]
    Truncated,
    /// The socket failed or timed out.
    #[error("socket")]
    Io(#[from] io::Error),
}
