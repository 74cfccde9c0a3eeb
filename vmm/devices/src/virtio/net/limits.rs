//! Rate limits of a NIC: bytes and frames a second, by direction.

use crate::virtio::rate::{RateLimit, TokenBucket};

/// Four limits, each of which may be none. Bytes are those of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetLimits {
    /// Bytes for the guest.
    pub receive_bytes: RateLimit,
    /// Frames for the guest.
    pub receive_frames: RateLimit,
    /// Bytes of the guest.
    pub transmit_bytes: RateLimit,
    /// Frames of the guest.
    pub transmit_frames: RateLimit,
}

/// The limits of one direction at work.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limiter {
    bytes: Option<TokenBucket>,
    frames: Option<TokenBucket>,
}

impl Limiter {
    /// All buckets full at `now_ns`.
    pub(super) fn new(bytes: RateLimit, frames: RateLimit, now_ns: u64) -> Self {
        Self {
            bytes: TokenBucket::new(bytes, now_ns),
            frames: TokenBucket::new(frames, now_ns),
        }
    }

    /// Whether anything is limited.
    pub(super) fn is_on(&self) -> bool {
        self.bytes.is_some() || self.frames.is_some()
    }

    /// Nanoseconds until a frame, however long, may pass; 0 for now.
    pub(super) fn wait_ns(&mut self, now_ns: u64) -> u64 {
        let buckets = self.bytes.iter_mut().chain(&mut self.frames);
        buckets
            .map(|bucket| bucket.wait_ns(now_ns))
            .max()
            .unwrap_or(0)
    }

    /// Takes what a frame that passed costs.
    pub(super) fn take(&mut self, bytes: u64) {
        if let Some(bucket) = &mut self.bytes {
            bucket.take(bytes);
        }
        if let Some(bucket) = &mut self.frames {
            bucket.take(1);
        }
    }
}
