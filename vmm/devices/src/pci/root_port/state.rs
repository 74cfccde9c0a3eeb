//! State of a root port: its registers.

use crate::state::DeviceState;

/// State of a root port.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RootPortState {
    /// Configuration space as it was.
    #[prost(bytes = "vec", tag = "1")]
    pub(super) config_space: Vec<u8>,
    /// The slot held a device.
    #[prost(bool, tag = "2")]
    pub(super) occupied: bool,
}

impl DeviceState for RootPortState {
    const KIND: &'static str = "pci-root-port";
    const VERSION: u32 = 1;
}
