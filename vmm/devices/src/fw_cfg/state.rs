//! State of the device.

use crate::state::DeviceState;

/// What is selected, and what was written.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FwCfgState {
    /// Key of the item that is selected.
    #[prost(uint32, tag = "1")]
    pub key: u32,
    /// Offset of its next byte.
    #[prost(uint32, tag = "2")]
    pub offset: u32,
    /// The upper half of a DMA address, until the lower comes.
    #[prost(uint32, tag = "3")]
    pub dma_high: u32,
    /// What was written to each file that may be, ascending by name.
    #[prost(bytes = "vec", repeated, tag = "4")]
    pub written: Vec<Vec<u8>>,
}

impl DeviceState for FwCfgState {
    const KIND: &'static str = "fw-cfg";
    const VERSION: u32 = 1;
}
