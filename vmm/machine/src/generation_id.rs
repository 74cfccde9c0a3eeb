//! The generation id as the configuration and a snapshot hold it.

use vmm_devices::DeviceState;

/// The id, as it lies in memory.
pub type GenerationId = [u8; 16];

/// The id that a guest had.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct GenerationState {
    /// Guest-physical address of the id.
    #[prost(uint64, tag = "1")]
    pub(crate) address: u64,
    /// The id, 16 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) id: Vec<u8>,
}

impl DeviceState for GenerationState {
    const KIND: &'static str = "vm-gen-id";
    const VERSION: u32 = 1;
}

impl GenerationState {
    /// The id at `address`.
    pub(crate) fn new(address: u64, id: GenerationId) -> Self {
        Self {
            address,
            id: id.to_vec(),
        }
    }
}
