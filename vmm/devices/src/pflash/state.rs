//! State of flash memory.

use crate::state::{DeviceState, Payload, StateError};

/// What it waits for. Its content is that of the variable store.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FlashState {
    /// Its size: firmware finds it by that.
    #[prost(uint64, tag = "1")]
    pub(super) bytes: u64,
    /// What reads see and the next write means.
    #[prost(uint32, tag = "2")]
    pub(super) mode: u32,
    /// How many bytes of a buffered write are still to come, less one.
    #[prost(uint32, tag = "3")]
    pub(super) left: u32,
    /// Error bits of the status.
    #[prost(uint32, tag = "4")]
    pub(super) status: u32,
    /// Where the bytes of a buffered write go.
    #[prost(uint64, repeated, tag = "5")]
    pub(super) buffer_offsets: Vec<u64>,
    /// The bytes.
    #[prost(bytes = "vec", tag = "6")]
    pub(super) buffer: Vec<u8>,
    /// Error number of the sync that failed; 0 when none did. Since version 2.
    #[prost(int32, tag = "7")]
    pub(super) sync_errno: i32,
}

impl DeviceState for FlashState {
    const KIND: &'static str = "pflash";
    const VERSION: u32 = 2;

    fn to_payload(&self) -> Payload {
        let version = match self.sync_errno {
            0 => WITHOUT_SYNC_FAILURE,
            _ => Self::VERSION,
        };
        Payload::of(Self::KIND, version, self)
    }

    fn from_payload(payload: &Payload) -> Result<Self, StateError> {
        match payload.version {
            WITHOUT_SYNC_FAILURE => payload.read(Self::KIND, WITHOUT_SYNC_FAILURE),
            _ => payload.read(Self::KIND, Self::VERSION),
        }
    }
}

/// Without a failed sync: what releases before it read, too.
const WITHOUT_SYNC_FAILURE: u32 = 1;
