//! What the host may leave undone in packets for the guest.

/// `TUN_F_*` of `linux/if_tun.h`.
const CSUM: u32 = 0x01;
const TSO4: u32 = 0x02;
const TSO6: u32 = 0x04;
const TSO_ECN: u32 = 0x08;
const UFO: u32 = 0x10;
const USO4: u32 = 0x20;
const USO6: u32 = 0x40;

/// What the guest's driver takes, and so what the host may leave undone in packets for it
/// (`TUNSETOFFLOAD`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TapOffloads {
    /// Packets without checksum.
    pub checksum: bool,
    /// TCP segments larger than the MTU, IPv4.
    pub tso4: bool,
    /// TCP segments larger than the MTU, IPv6.
    pub tso6: bool,
    /// Such segments with ECN.
    pub ecn: bool,
    /// UDP datagrams larger than the MTU, to be cut into fragments.
    pub ufo: bool,
    /// Several UDP datagrams in one packet, IPv4 and IPv6 (Linux 6.2; the kernel wants both or none).
    pub uso: bool,
}

impl TapOffloads {
    /// As `TUN_F_*` bits. Segmentation without checksum offload is refused by the kernel and left
    /// out.
    pub(super) fn bits(self) -> u32 {
        if !self.checksum {
            return 0;
        }
        let when = |wanted: bool, bits: u32| if wanted { bits } else { 0 };
        CSUM | when(self.tso4, TSO4)
            | when(self.tso6, TSO6)
            | when(self.ecn && (self.tso4 || self.tso6), TSO_ECN)
            | when(self.ufo, UFO)
            | when(self.uso, USO4 | USO6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segmentation_is_never_asked_for_without_checksums() {
        let all = TapOffloads {
            checksum: true,
            tso4: true,
            tso6: true,
            ecn: true,
            ufo: true,
            uso: true,
        };
        assert_eq!(all.bits(), 0x7f);
        let without = TapOffloads {
            checksum: false,
            ..all
        };
        assert_eq!(without.bits(), 0);
        let only_ecn = TapOffloads {
            checksum: true,
            ecn: true,
            ..TapOffloads::default()
        };
        assert_eq!(only_ecn.bits(), 1);
    }
}
