//! Sizes of packets as they pass between the rings and the backend.

use vmm_sys::tap::VNET_HEADER_BYTES;

pub(super) const HEADER_BYTES: u64 = VNET_HEADER_BYTES as u64;

/// Shortest and longest packet, header and all: an Ethernet header, and a segment of 64 KiB with tags.
pub(super) const MIN_PACKET_BYTES: u64 = HEADER_BYTES + 14;

pub(super) const MAX_PACKET_BYTES: u64 = HEADER_BYTES + 65_536 + 64;
