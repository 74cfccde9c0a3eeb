//! Configuration of a NIC, its features, and its configuration space
//! (`struct virtio_net_config`, VIRTIO 1.2, 5.1.4).

use vmm_sys::tap::TapOffloads;

use super::limits::NetLimits;

const CSUM: u64 = 1 << 0;
const GUEST_CSUM: u64 = 1 << 1;
/// `VIRTIO_NET_F_CTRL_GUEST_OFFLOADS`.
pub(super) const CTRL_GUEST_OFFLOADS: u64 = 1 << 2;
const MTU: u64 = 1 << 3;
const MAC: u64 = 1 << 5;
const GUEST_TSO4: u64 = 1 << 7;
const GUEST_TSO6: u64 = 1 << 8;
const GUEST_ECN: u64 = 1 << 9;
const GUEST_UFO: u64 = 1 << 10;
const HOST_TSO4: u64 = 1 << 11;
const HOST_TSO6: u64 = 1 << 12;
const HOST_ECN: u64 = 1 << 13;
const HOST_UFO: u64 = 1 << 14;
/// `VIRTIO_NET_F_MRG_RXBUF`.
pub(super) const MRG_RXBUF: u64 = 1 << 15;
const STATUS: u64 = 1 << 16;
/// `VIRTIO_NET_F_CTRL_VQ`.
pub(super) const CTRL_VQ: u64 = 1 << 17;
/// `VIRTIO_NET_F_CTRL_RX`.
pub(super) const CTRL_RX: u64 = 1 << 18;
/// `VIRTIO_NET_F_CTRL_VLAN`.
pub(super) const CTRL_VLAN: u64 = 1 << 19;
/// `VIRTIO_NET_F_CTRL_RX_EXTRA`.
pub(super) const CTRL_RX_EXTRA: u64 = 1 << 20;
/// `VIRTIO_NET_F_GUEST_ANNOUNCE`.
pub(super) const GUEST_ANNOUNCE: u64 = 1 << 21;
/// `VIRTIO_NET_F_MQ`.
pub(super) const MQ: u64 = 1 << 22;
/// `VIRTIO_NET_F_CTRL_MAC_ADDR`.
pub(super) const CTRL_MAC_ADDR: u64 = 1 << 23;
/// `VIRTIO_NET_F_GUEST_USO4` and `GUEST_USO6`.
const GUEST_USO: u64 = 0b11 << 54;
const HOST_USO: u64 = 1 << 56;
const SPEED_DUPLEX: u64 = 1 << 63;

/// Features by which a driver says what the host may leave undone.
const GUEST_OFFLOADS: u64 =
    GUEST_CSUM | GUEST_TSO4 | GUEST_TSO6 | GUEST_ECN | GUEST_UFO | GUEST_USO;

/// `VIRTIO_NET_S_LINK_UP`.
pub(super) const LINK_UP: u16 = 1;
/// `VIRTIO_NET_S_ANNOUNCE`.
pub(super) const ANNOUNCE: u16 = 2;

/// `duplex` of a NIC that knows its speed.
const FULL_DUPLEX: u8 = 1;

/// Most pairs of queues that a NIC has.
pub const MAX_PAIRS: usize = 32;

/// Configuration of a NIC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetConfig {
    /// Its address, until the driver chooses another.
    pub mac: [u8; 6],
    /// Offered to the guest unless it is 0.
    pub mtu: u16,
    /// In Mbit/s, offered to the guest unless it is 0.
    pub speed_mbps: u32,
    /// The link is down at first.
    pub link_down: bool,
    /// All queues share one MSI-X vector, so that frames received and frames sent are one interrupt.
    pub shared_vector: bool,
    /// Bytes and frames a second.
    pub limits: NetLimits,
}

/// What features depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Abilities {
    pub(super) pairs: usize,
    /// The host can segment UDP.
    pub(super) uso: bool,
}

/// Features offered.
pub(super) fn features(config: &NetConfig, abilities: Abilities) -> u64 {
    let when = |wanted: bool, features: u64| if wanted { features } else { 0 };
    let host = CSUM | HOST_TSO4 | HOST_TSO6 | HOST_ECN | HOST_UFO;
    let guest = GUEST_OFFLOADS & !GUEST_USO;
    let control = CTRL_VQ
        | CTRL_RX
        | CTRL_RX_EXTRA
        | CTRL_VLAN
        | CTRL_MAC_ADDR
        | CTRL_GUEST_OFFLOADS
        | GUEST_ANNOUNCE;
    host | guest
        | control
        | MAC
        | STATUS
        | MRG_RXBUF
        | when(abilities.uso, HOST_USO | GUEST_USO)
        | when(abilities.pairs > 1, MQ)
        | when(config.mtu != 0, MTU)
        | when(config.speed_mbps != 0, SPEED_DUPLEX)
}

/// Whether features come with those they need (VIRTIO 1.2, 5.1.3.1).
pub(super) fn consistent(features: u64) -> bool {
    let needs = |these: u64, one_of: u64| features & these == 0 || features & one_of != 0;
    let controlled = CTRL_RX | CTRL_VLAN | GUEST_ANNOUNCE | MQ | CTRL_MAC_ADDR;
    needs(GUEST_TSO4 | GUEST_TSO6 | GUEST_UFO | GUEST_USO, GUEST_CSUM)
        && needs(GUEST_ECN, GUEST_TSO4 | GUEST_TSO6)
        && needs(HOST_TSO4 | HOST_TSO6 | HOST_UFO | HOST_USO, CSUM)
        && needs(HOST_ECN, HOST_TSO4 | HOST_TSO6)
        && needs(controlled, CTRL_VQ)
        && needs(CTRL_RX_EXTRA, CTRL_RX)
}

/// The offloads among `features` that the driver may switch by the control queue, which has the same
/// bits (VIRTIO 1.2, 5.1.6.5.6).
pub(super) fn guest_offloads(features: u64) -> u64 {
    features & GUEST_OFFLOADS
}

/// The same for the host side.
pub(super) fn tap_offloads(guest_offloads: u64) -> TapOffloads {
    let has = |feature: u64| guest_offloads & feature == feature;
    TapOffloads {
        checksum: has(GUEST_CSUM),
        tso4: has(GUEST_TSO4),
        tso6: has(GUEST_TSO6),
        ecn: has(GUEST_ECN),
        ufo: has(GUEST_UFO),
        uso: has(GUEST_USO),
    }
}

/// The structure as the driver reads it, up to `duplex`.
pub(super) fn config_space(config: &NetConfig, mac: [u8; 6], status: u16, pairs: usize) -> Vec<u8> {
    let mut space = mac.to_vec();
    space.extend_from_slice(&status.to_le_bytes());
    space.extend_from_slice(&u16::try_from(pairs).unwrap_or(1).to_le_bytes());
    space.extend_from_slice(&config.mtu.to_le_bytes());
    if config.speed_mbps != 0 {
        space.extend_from_slice(&config.speed_mbps.to_le_bytes());
        space.push(FULL_DUPLEX);
    }
    space
}
