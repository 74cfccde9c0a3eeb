//! What a device is made of, and what its guest reads of it (`struct virtio_vsock_config`).

use std::sync::Arc;

use vmm_sys::socket::ListeningSocket;

use super::control::VsockControl;

/// `VIRTIO_VSOCK_F_STREAM`. A driver that does not know it means the same.
pub(super) const FEATURES: u64 = 1 << 0;

/// Lowest CID that a guest can have: 0 and 1 are reserved, 2 is the host.
pub const MIN_GUEST_CID: u32 = 3;
/// Highest: the one after it means "any".
pub const MAX_GUEST_CID: u32 = u32::MAX - 1;

/// Configuration of the device.
#[derive(Debug)]
pub struct VsockConfig {
    /// The guest's address, [`MIN_GUEST_CID`] to [`MAX_GUEST_CID`].
    pub guest_cid: u32,
    /// Where programs of the host connect that want to reach the guest.
    pub listener: Option<ListeningSocket>,
    /// By which a broker is attached, before the device is made or after.
    pub control: Arc<VsockControl>,
}

/// The structure as the driver reads it.
pub(super) fn image(guest_cid: u32) -> Vec<u8> {
    u64::from(guest_cid).to_le_bytes().to_vec()
}
