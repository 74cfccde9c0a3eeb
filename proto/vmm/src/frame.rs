//! Frames: an 8 byte header, then one encoded [`Frame`].
//!
//! What a peer sends is bounded before it is stored: a header that promises more than
//! [`MAX_BODY_BYTES`] or [`MAX_DESCRIPTORS`] is an error at once, so a connection never holds more
//! than one frame of the largest size.

use std::collections::VecDeque;

use prost::Message;

use crate::v1::Frame;

/// Size of the header: u32 length of the body, u16 number of descriptors, u16 zero; little endian.
pub const FRAME_HEADER_BYTES: usize = 8;

/// Largest body of a frame.
pub const MAX_BODY_BYTES: usize = 1 << 20;

/// Most descriptors that travel with one frame.
pub const MAX_DESCRIPTORS: usize = 64;

/// Why bytes are not a frame of this protocol. The connection is beyond repair after any of them.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The header promises a body beyond the limit.
    #[error("a frame of {0} bytes is longer than the {MAX_BODY_BYTES} bytes allowed")]
    BodyTooLong(u64),
    /// The header promises more descriptors than the limit.
    #[error("a frame with {0} descriptors has more than the {MAX_DESCRIPTORS} allowed")]
    TooManyDescriptors(usize),
    /// The reserved half-word of the header is in use.
    #[error("the reserved field of a frame header is {0:#x} instead of zero")]
    ReservedNotZero(u16),
    /// The frame is complete but descriptors are missing.
    #[error("a frame promised {promised} descriptors but {received} arrived")]
    MissingDescriptors {
        /// What the header said.
        promised: usize,
        /// What came by SCM_RIGHTS.
        received: usize,
    },
    /// Descriptors came that belong to no frame.
    #[error("{0} descriptors arrived that belong to no frame")]
    StrayDescriptors(usize),
    /// The body is not an encoded `Frame`.
    #[error("the body of a frame cannot be decoded")]
    Body(#[source] prost::DecodeError),
}

/// The header of one frame, within the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    body_bytes: u32,
    descriptors: u16,
}

impl FrameHeader {
    /// A header for a body of `body_bytes` bytes and that many descriptors.
    ///
    /// # Errors
    /// When either is beyond its limit.
    pub fn new(body_bytes: usize, descriptors: usize) -> Result<Self, FrameError> {
        let too_long = || FrameError::BodyTooLong(body_bytes as u64);
        let length = u32::try_from(body_bytes).map_err(|_| too_long())?;
        if body_bytes > MAX_BODY_BYTES {
            return Err(too_long());
        }
        let too_many = || FrameError::TooManyDescriptors(descriptors);
        let count = u16::try_from(descriptors).map_err(|_| too_many())?;
        if descriptors > MAX_DESCRIPTORS {
            return Err(too_many());
        }
        Ok(Self {
            body_bytes: length,
            descriptors: count,
        })
    }

    /// The header as it stands on the wire.
    #[must_use]
    pub fn encode(self) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.descriptors.to_le_bytes());
        bytes
    }

    /// Reads a header from the wire.
    ///
    /// # Errors
    /// When a limit is exceeded or the reserved field is not zero.
    pub fn decode(bytes: [u8; FRAME_HEADER_BYTES]) -> Result<Self, FrameError> {
        let [b0, b1, b2, b3, d0, d1, r0, r1] = bytes;
        let reserved = u16::from_le_bytes([r0, r1]);
        if reserved != 0 {
            return Err(FrameError::ReservedNotZero(reserved));
        }
        Self::new(
            u32::from_le_bytes([b0, b1, b2, b3]) as usize,
            usize::from(u16::from_le_bytes([d0, d1])),
        )
    }

    /// Length of the body in bytes.
    #[must_use]
    pub fn body_bytes(self) -> usize {
        self.body_bytes as usize
    }

    /// Number of descriptors that travel with the header's first byte.
    #[must_use]
    pub fn descriptors(self) -> usize {
        usize::from(self.descriptors)
    }
}

/// Header and body of `frame`, ready to be sent with that many descriptors on its first byte.
///
/// # Errors
/// When the frame or its descriptors are beyond the limits.
pub fn encode_frame(frame: &Frame, descriptors: usize) -> Result<Vec<u8>, FrameError> {
    let body_bytes = frame.encoded_len();
    let header = FrameHeader::new(body_bytes, descriptors)?;
    let mut bytes = Vec::with_capacity(FRAME_HEADER_BYTES + body_bytes);
    bytes.extend_from_slice(&header.encode());
    bytes.extend_from_slice(&frame.encode_to_vec());
    Ok(bytes)
}

/// The descriptors of one frame; `D` is the transport's type, such as `OwnedFd`.
pub type Descriptors<D> = Vec<D>;

/// Cuts a stream of bytes and descriptors into frames.
///
/// Descriptors are matched to frames by order: they were sent with the first byte of the header,
/// and the kernel never delivers them later than that byte.
#[derive(Debug)]
pub struct FrameDecoder<D> {
    bytes: Vec<u8>,
    descriptors: VecDeque<D>,
}

impl<D> Default for FrameDecoder<D> {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            descriptors: VecDeque::new(),
        }
    }
}

impl<D> FrameDecoder<D> {
    /// A decoder at the start of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes what one read delivered. Call [`Self::next_frame`] until it gives `None` before the
    /// next read: that keeps the memory of one connection below two frames.
    ///
    /// # Errors
    /// When descriptors pile up beyond what two frames may carry.
    pub fn push(
        &mut self,
        bytes: &[u8],
        descriptors: impl IntoIterator<Item = D>,
    ) -> Result<(), FrameError> {
        self.bytes.extend_from_slice(bytes);
        self.descriptors.extend(descriptors);
        if self.descriptors.len() > 2 * MAX_DESCRIPTORS {
            return Err(FrameError::StrayDescriptors(self.descriptors.len()));
        }
        Ok(())
    }

    /// The next whole frame, or `None` when more bytes are needed.
    ///
    /// # Errors
    /// When the stream is not of this protocol; the connection must be closed then.
    pub fn next_frame(&mut self) -> Result<Option<(Frame, Descriptors<D>)>, FrameError> {
        let Some(header) = self.bytes.first_chunk::<FRAME_HEADER_BYTES>() else {
            if self.bytes.is_empty() && !self.descriptors.is_empty() {
                return Err(FrameError::StrayDescriptors(self.descriptors.len()));
            }
            return Ok(None);
        };
        let header = FrameHeader::decode(*header)?;
        let end = FRAME_HEADER_BYTES + header.body_bytes();
        let Some(body) = self.bytes.get(FRAME_HEADER_BYTES..end) else {
            return Ok(None);
        };
        let received = self.descriptors.len();
        if received < header.descriptors() {
            return Err(FrameError::MissingDescriptors {
                promised: header.descriptors(),
                received,
            });
        }
        let frame = Frame::decode(body).map_err(FrameError::Body)?;
        let descriptors = self.descriptors.drain(..header.descriptors()).collect();
        self.bytes.drain(..end);
        if self.bytes.is_empty() {
            // An idle connection holds no buffer.
            self.bytes = Vec::new();
        }
        Ok(Some((frame, descriptors)))
    }

    /// Whether the stream ended between two frames; anything else was cut off.
    #[must_use]
    pub fn is_at_boundary(&self) -> bool {
        self.bytes.is_empty() && self.descriptors.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::v1::{Request, Stop, frame::Body, request::Kind};

    fn request(id: u64, reason: String) -> Frame {
        Frame {
            body: Some(Body::Request(Request {
                id,
                kind: Some(Kind::Stop(Stop { reason })),
            })),
        }
    }

    fn drain(decoder: &mut FrameDecoder<u32>) -> Vec<(Frame, Vec<u32>)> {
        std::iter::from_fn(|| decoder.next_frame().unwrap()).collect()
    }

    proptest! {
        #[test]
        fn every_header_within_the_limits_survives_the_wire(
            body in 0..=MAX_BODY_BYTES, descriptors in 0..=MAX_DESCRIPTORS,
        ) {
            let header = FrameHeader::new(body, descriptors).unwrap();
            prop_assert_eq!(FrameHeader::decode(header.encode()).unwrap(), header);
        }

        #[test]
        fn hostile_headers_never_promise_more_than_the_limits(bytes: [u8; 8]) {
            if let Ok(header) = FrameHeader::decode(bytes) {
                prop_assert!(header.body_bytes() <= MAX_BODY_BYTES);
                prop_assert!(header.descriptors() <= MAX_DESCRIPTORS);
                prop_assert_eq!(header.encode(), bytes);
            }
        }

        #[test]
        fn frames_come_out_as_they_went_in_however_the_stream_is_cut(
            frames in proptest::collection::vec((any::<u64>(), ".{0,40}", 0usize..3), 0..6),
            cut in 1usize..50,
        ) {
            let mut stream = Vec::new();
            let mut sent = Vec::new();
            let mut next_descriptor = 0u32;
            for (id, reason, count) in frames {
                let frame = request(id, reason);
                let bytes = encode_frame(&frame, count).unwrap();
                let descriptors: Vec<u32> = (0..count).map(|_| { next_descriptor += 1; next_descriptor }).collect();
                for (index, byte) in bytes.iter().enumerate() {
                    stream.push((*byte, if index == 0 { descriptors.clone() } else { Vec::new() }));
                }
                sent.push((frame, descriptors));
            }
            let mut decoder = FrameDecoder::new();
            let mut received = Vec::new();
            for chunk in stream.chunks(cut) {
                let bytes: Vec<u8> = chunk.iter().map(|(byte, _)| *byte).collect();
                decoder.push(&bytes, chunk.iter().flat_map(|(_, d)| d.clone())).unwrap();
                received.extend(drain(&mut decoder));
            }
            prop_assert_eq!(received, sent);
            prop_assert!(decoder.is_at_boundary());
        }

        #[test]
        fn noise_is_refused_or_waits_but_never_panics(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut decoder = FrameDecoder::<u32>::new();
            decoder.push(&bytes, []).unwrap();
            while let Ok(Some(_)) = decoder.next_frame() {}
        }
    }

    #[test]
    fn a_frame_without_its_descriptors_is_refused() {
        let mut decoder = FrameDecoder::<u32>::new();
        let bytes = encode_frame(&request(1, String::new()), 2).unwrap();
        decoder.push(&bytes, [7]).unwrap();
        assert!(matches!(
            decoder.next_frame(),
            Err(FrameError::MissingDescriptors {
                promised: 2,
                received: 1
            })
        ));
    }

    #[test]
    fn descriptors_of_no_frame_are_refused() {
        let mut decoder = FrameDecoder::new();
        let bytes = encode_frame(&request(1, String::new()), 0).unwrap();
        decoder.push(&bytes, [7u32]).unwrap();
        assert!(decoder.next_frame().unwrap().is_some());
        assert!(matches!(
            decoder.next_frame(),
            Err(FrameError::StrayDescriptors(1))
        ));
    }

    #[test]
    fn a_body_beyond_the_limit_is_never_sent() {
        let frame = request(1, "x".repeat(MAX_BODY_BYTES));
        assert!(matches!(
            encode_frame(&frame, 0),
            Err(FrameError::BodyTooLong(_))
        ));
    }
}
