//! State of what has no device of its own.

use vmm_devices::DeviceState;

/// Registers that only firmware uses.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PlatformState {
    /// Memory of the clock.
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) clock_memory: Vec<u8>,
    /// APM control and status, ports 0xb2 and 0xb3.
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) apm: Vec<u8>,
    /// Port 0x92.
    #[prost(uint32, tag = "3")]
    pub(crate) fast_a20: u32,
    /// Length of the firmware image: firmware finds its variables by it.
    #[prost(uint64, tag = "4")]
    pub(crate) code_bytes: u64,
}

impl DeviceState for PlatformState {
    const KIND: &'static str = "firmware-platform";
    const VERSION: u32 = 1;
}
