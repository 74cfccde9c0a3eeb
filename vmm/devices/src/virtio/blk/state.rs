//! The saved state of a disk: requests that are held, and that a sync failed. Everything else that is
//! at rest is in its rings, its image and its configuration.

use super::flight::MAX_IN_FLIGHT;
use super::overlay::Overlay;
use crate::state::{DeviceState, Payload, StateError};
use crate::sync_failure::saved_errno;
use crate::virtio::queue::{Buffer, Chain, MAX_CHAIN_DESCRIPTORS};

/// Most buffers of all requests that are held together: as many as 128 requests of a driver that
/// keeps to `seg_max` have. What goes beyond is answered, whatever the policy says, so that the
/// state of a disk can always be written and read.
pub(super) const MAX_HELD_BUFFERS: usize = MAX_IN_FLIGHT * 256;

/// The state.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct BlkState {
    /// Requests that the host failed, oldest first, and then what a pause left to do.
    #[prost(message, repeated, tag = "1")]
    held: Vec<HeldState>,
    /// Error number of the sync that failed; 0 when none did. Since version 2.
    #[prost(int32, tag = "2")]
    sync_errno: i32,
    /// Which blocks the image has of a disk with a base. Since version 3.
    #[prost(message, optional, tag = "3")]
    overlay: Option<OverlayState>,
}

/// What an image hides of its base.
#[derive(Clone, PartialEq, prost::Message)]
struct OverlayState {
    /// Size of the base.
    #[prost(uint64, tag = "1")]
    base_bytes: u64,
    /// The parts of the bitmap that are not all zeros, in order.
    #[prost(message, repeated, tag = "2")]
    parts: Vec<BitmapPart>,
}

/// [`PART_WORDS`] words of a bitmap, the last part's less.
#[derive(Clone, PartialEq, prost::Message)]
struct BitmapPart {
    /// Number of the part.
    #[prost(uint32, tag = "1")]
    index: u32,
    /// The words, little endian.
    #[prost(bytes = "vec", tag = "2")]
    bits: Vec<u8>,
}

/// Words of a bitmap that are kept or left out together: those of 32 MiB.
const PART_WORDS: usize = 128;

/// Without a failed sync: what releases before it read, too.
const WITHOUT_SYNC_FAILURE: u32 = 1;
/// Without a base: what releases before it read, too.
const WITHOUT_OVERLAY: u32 = 2;

impl DeviceState for BlkState {
    const KIND: &'static str = "virtio-blk";
    const VERSION: u32 = 3;

    fn to_payload(&self) -> Payload {
        let version = match (&self.overlay, self.sync_errno) {
            (Some(_), _) => Self::VERSION,
            (None, 0) => WITHOUT_SYNC_FAILURE,
            (None, _) => WITHOUT_OVERLAY,
        };
        Payload::of(Self::KIND, version, self)
    }

    fn from_payload(payload: &Payload) -> Result<Self, StateError> {
        match payload.version {
            older @ (WITHOUT_SYNC_FAILURE | WITHOUT_OVERLAY) => payload.read(Self::KIND, older),
            _ => payload.read(Self::KIND, Self::VERSION),
        }
    }
}

/// A request as its descriptors said. What it asks for is read from guest memory again.
#[derive(Clone, PartialEq, prost::Message)]
struct HeldState {
    #[prost(uint32, tag = "1")]
    queue: u32,
    /// First descriptor.
    #[prost(uint32, tag = "2")]
    head: u32,
    #[prost(message, repeated, tag = "3")]
    readable: Vec<BufferState>,
    #[prost(message, repeated, tag = "4")]
    writable: Vec<BufferState>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct BufferState {
    #[prost(uint64, tag = "1")]
    address: u64,
    #[prost(uint32, tag = "2")]
    bytes: u32,
}

/// A request that is held, without what it asks for.
#[derive(Clone, Debug)]
pub(super) struct HeldChain {
    pub(super) queue: usize,
    pub(super) chain: Chain,
}

impl BlkState {
    pub(super) fn new<'a>(
        held: impl Iterator<Item = (usize, &'a Chain)>,
        sync_failure: Option<i32>,
        overlay: Option<&Overlay>,
    ) -> Self {
        let state = |(queue, chain): (usize, &Chain)| HeldState {
            queue: u32::try_from(queue).unwrap_or(u32::MAX),
            head: chain.head.into(),
            readable: buffer_states(&chain.readable),
            writable: buffer_states(&chain.writable),
        };
        Self {
            held: held.map(state).collect(),
            sync_errno: sync_failure.unwrap_or(0),
            overlay: overlay.map(OverlayState::of),
        }
    }

    /// Whether there is nothing to keep.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.sync_errno == 0 && self.overlay.is_none()
    }

    /// The error number of the sync that failed.
    pub(super) fn sync_failure(&self) -> Result<Option<i32>, StateError> {
        saved_errno(self.sync_errno).map_err(Self::wrong)
    }

    /// Marks the blocks that the image of the disk had.
    pub(super) fn restore_overlay(&self, overlay: Option<&mut Overlay>) -> Result<(), StateError> {
        match (&self.overlay, overlay) {
            (None, None) => Ok(()),
            (Some(_), None) => Err(Self::wrong("blocks over a base, which is not there")),
            (None, Some(_)) => Err(Self::wrong("no blocks, of a disk that has a base")),
            (Some(state), Some(overlay)) => state.restore(overlay),
        }
    }

    /// The requests, found to be ones that a disk with `queues` queues can hold.
    pub(super) fn held(&self, queues: u16) -> Result<Vec<HeldChain>, StateError> {
        if self.held.len() > MAX_IN_FLIGHT {
            return Err(Self::wrong("more requests than a disk can hold"));
        }
        self.held.iter().map(|held| held.chain(queues)).collect()
    }
}

impl OverlayState {
    fn of(overlay: &Overlay) -> Self {
        let parts = overlay.present().chunks(PART_WORDS).zip(0..);
        let written = parts.filter(|(words, _)| words.iter().any(|word| *word != 0));
        let parts = written.map(|(words, index)| BitmapPart {
            index,
            bits: words.iter().copied().flat_map(u64::to_le_bytes).collect(),
        });
        Self {
            base_bytes: overlay.base_bytes(),
            parts: parts.collect(),
        }
    }

    fn restore(&self, overlay: &mut Overlay) -> Result<(), StateError> {
        if self.base_bytes != overlay.base_bytes() {
            return Err(BlkState::wrong(format!(
                "blocks over a base of {} bytes, which has {}",
                self.base_bytes,
                overlay.base_bytes()
            )));
        }
        let mut present = vec![0; overlay.present().len()];
        for part in &self.parts {
            let words = usize::try_from(part.index)
                .ok()
                .and_then(|index| present.chunks_mut(PART_WORDS).nth(index))
                .filter(|words| size_of_val(*words) == part.bits.len())
                .ok_or_else(|| BlkState::wrong(format!("part {} of a bitmap", part.index)))?;
            for (word, bytes) in words.iter_mut().zip(part.bits.as_chunks().0) {
                *word = u64::from_le_bytes(*bytes);
            }
        }
        overlay.adopt(present);
        Ok(())
    }
}

impl HeldState {
    fn chain(&self, queues: u16) -> Result<HeldChain, StateError> {
        let queue = usize::try_from(self.queue)
            .ok()
            .filter(|queue| *queue < usize::from(queues))
            .ok_or_else(|| BlkState::wrong(format!("a request of queue {}", self.queue)))?;
        let head = u16::try_from(self.head)
            .map_err(|_| BlkState::wrong(format!("a request at descriptor {}", self.head)))?;
        if self.readable.len() + self.writable.len() > MAX_CHAIN_DESCRIPTORS {
            return Err(BlkState::wrong("a request with too many buffers"));
        }
        Ok(HeldChain {
            queue,
            chain: Chain {
                head,
                readable: buffers(&self.readable),
                writable: buffers(&self.writable),
            },
        })
    }
}

fn buffer_states(buffers: &[Buffer]) -> Vec<BufferState> {
    let state = |buffer: &Buffer| BufferState {
        address: buffer.address,
        bytes: buffer.bytes,
    };
    buffers.iter().map(state).collect()
}

fn buffers(states: &[BufferState]) -> Vec<Buffer> {
    let buffer = |state: &BufferState| Buffer {
        address: state.address,
        bytes: state.bytes,
    };
    states.iter().map(buffer).collect()
}
