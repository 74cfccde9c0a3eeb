//! The saved state of the device: not its connections (VIRTIO 1.2, 5.10.6.7), but which ports they had:
//! these are not given out again at once, as the guest may still know them.

use crate::state::DeviceState;

/// The state.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct VsockState {
    /// Counts connections that began on the host.
    #[prost(uint32, tag = "1")]
    pub(super) host_connections: u32,
}

impl DeviceState for VsockState {
    const KIND: &'static str = "virtio-vsock";
    const VERSION: u32 = 1;
}
