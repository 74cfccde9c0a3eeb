//! Feature bits of a NIC, and sizes of its packets (virtio 1.2, 5.1).

use testguest_lib::echo_frame::MAX_FRAME_BYTES;

pub(super) const FEATURE_CSUM: u64 = 1 << 0;
pub(super) const FEATURE_MAC: u64 = 1 << 5;
pub(super) const FEATURE_MERGE: u64 = 1 << 15;
pub(super) const FEATURE_STATUS: u64 = 1 << 16;
pub(super) const FEATURE_CTRL_VQ: u64 = 1 << 17;
pub(super) const FEATURE_CTRL_RX: u64 = 1 << 18;
pub(super) const FEATURE_ANNOUNCE: u64 = 1 << 21;
pub(super) const FEATURE_MQ: u64 = 1 << 22;
pub(super) const FEATURE_CTRL_MAC: u64 = 1 << 23;

/// With VIRTIO_F_VERSION_1 the header always has `num_buffers`.
pub(super) const HEADER_BYTES: usize = 12;
/// The longest frame with its header.
pub(super) const MAX_PACKET_BYTES: usize = HEADER_BYTES + MAX_FRAME_BYTES;
/// A receive buffer into which every frame fits.
pub(super) const BUFFER_BYTES: u16 = 2048;
pub(super) const TRANSMIT_TIMEOUT_MS: u64 = 5_000;

/// Room for a frame with its header.
pub(super) type FrameBuffer = [u8; MAX_PACKET_BYTES];
