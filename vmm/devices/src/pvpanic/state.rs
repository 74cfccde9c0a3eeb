//! State of a panic device.

use crate::state::DeviceState;

/// State of a panic device on PCI.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PvpanicState {
    /// Configuration space as it was.
    #[prost(bytes = "vec", tag = "1")]
    pub(super) config_space: Vec<u8>,
    /// The guest reported a crash kernel since the last reset.
    #[prost(bool, tag = "2")]
    pub(super) crash_was_reported: bool,
}

impl DeviceState for PvpanicState {
    const KIND: &'static str = "pvpanic-pci";
    const VERSION: u32 = 1;
}
