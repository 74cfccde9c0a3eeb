//! Features and configuration space of a network card (`struct virtio_net_config`).

use vmm_sys::tap::TapOffloads;

const CSUM: u64 = 1 << 0;
const GUEST_CSUM: u64 = 1 << 1;
const MTU: u64 = 1 << 3;
const MAC: u64 = 1 << 5;
const GUEST_TSO4: u64 = 1 << 7;
const GUEST_TSO6: u64 = 1 << 8;
const GUEST_ECN: u64 = 1 << 9;
const HOST_TSO4: u64 = 1 << 11;
const HOST_TSO6: u64 = 1 << 12;
const HOST_ECN: u64 = 1 << 13;
/// `VIRTIO_NET_F_MRG_RXBUF`.
pub(super) const MRG_RXBUF: u64 = 1 << 15;
const STATUS: u64 = 1 << 16;

/// `VIRTIO_NET_S_LINK_UP`.
const LINK_UP: u16 = 1;

/// Features offered.
pub(super) fn features(mtu: u16) -> u64 {
    let host = CSUM | HOST_TSO4 | HOST_TSO6 | HOST_ECN;
    let guest = GUEST_CSUM | GUEST_TSO4 | GUEST_TSO6 | GUEST_ECN;
    host | guest | MAC | STATUS | MRG_RXBUF | if mtu == 0 { 0 } else { MTU }
}

/// Whether features come with those they need (VIRTIO 1.2, 5.1.3.1).
pub(super) fn consistent(features: u64) -> bool {
    let needs = |these: u64, one_of: u64| features & these == 0 || features & one_of != 0;
    needs(GUEST_TSO4 | GUEST_TSO6, GUEST_CSUM)
        && needs(GUEST_ECN, GUEST_TSO4 | GUEST_TSO6)
        && needs(HOST_TSO4 | HOST_TSO6, CSUM)
        && needs(HOST_ECN, HOST_TSO4 | HOST_TSO6)
}

/// What the driver takes, for the host side.
pub(super) fn offloads(features: u64) -> TapOffloads {
    TapOffloads {
        checksum: features & GUEST_CSUM != 0,
        tso4: features & GUEST_TSO4 != 0,
        tso6: features & GUEST_TSO6 != 0,
        ecn: features & GUEST_ECN != 0,
    }
}

/// The structure as the driver reads it, up to `mtu`.
pub(super) fn image(mac: [u8; 6], mtu: u16) -> Vec<u8> {
    let mut image = mac.to_vec();
    image.extend_from_slice(&LINK_UP.to_le_bytes());
    image.extend_from_slice(&0u16.to_le_bytes()); // max_virtqueue_pairs: not offered
    image.extend_from_slice(&mtu.to_le_bytes());
    image
}
