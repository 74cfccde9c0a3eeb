//! Where the registers of a virtio function are: one 64-bit BAR, its structures on pages of their
//! own, and the capabilities that say so (VIRTIO 1.2, 4.1.4).

use crate::pci::config::{ConfigSpace, LayoutError, PciIdentity};
use crate::pci::function::BarKind;
use crate::virtio::device::DeviceKind;

/// Index of the only BAR.
pub(super) const BAR: usize = 0;
/// Its size.
pub(super) const BAR_BYTES: u64 = 0x8000;

/// Bytes of one kick register; queue n has the n-th.
pub(super) const KICK_BYTES: u64 = 4;

/// Vendor id of virtio, also that of the subsystem.
const VENDOR: u16 = 0x1af4;
/// Subsystem id of QEMU's virtio devices, by which Windows' drivers find theirs.
const SUBSYSTEM: u16 = 0x1100;

/// PCI capability ids.
const CAP_VENDOR: u8 = 0x09;
const CAP_MSIX: u8 = 0x11;

/// A structure within the BAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Region {
    Common,
    Isr,
    Device,
    Kick,
    MsixTable,
    MsixPending,
}

impl Region {
    /// Offset in the BAR and length in bytes.
    const fn range(self) -> (u32, u32) {
        match self {
            Self::Common => (0x0000, 56),
            Self::Isr => (0x1000, 1),
            Self::Device => (0x2000, 0x1000),
            Self::Kick => (0x3000, 0x1000),
            Self::MsixTable => (0x4000, 0x2000),
            Self::MsixPending => (0x6000, 0x1000),
        }
    }

    /// `cfg_type` of the capability.
    const fn config_type(self) -> u8 {
        match self {
            Self::Common => 1,
            Self::Kick => 2,
            Self::Isr => 3,
            _ => 4,
        }
    }

    /// The structure on the page of `offset`, and the offset within it. Structures shorter than
    /// their page ignore the rest of it.
    pub(super) fn at(offset: u64) -> Option<(Self, u64)> {
        let region = match offset >> 12 {
            0 => Self::Common,
            1 => Self::Isr,
            2 => Self::Device,
            3 => Self::Kick,
            4 | 5 => Self::MsixTable,
            6 => Self::MsixPending,
            _ => return None,
        };
        Some((region, offset - u64::from(region.range().0)))
    }
}

/// Offset in the BAR of a queue's kick register.
pub(super) fn kick_offset(queue: usize) -> u64 {
    u64::from(Region::Kick.range().0) + queue as u64 * KICK_BYTES
}

/// Most queues that kick registers and MSI-X table (one vector is for configuration) hold.
pub(super) const MAX_QUEUES: usize = 511;

/// Offsets in configuration space of what the function keeps up itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offsets {
    /// MSI-X message control.
    pub(super) msix_control: u16,
    /// The `virtio_pci_cfg_cap`.
    pub(super) window: u16,
}

/// Configuration space of a virtio function with `vectors` MSI-X vectors (1 to 512).
pub(super) fn config_space(
    kind: DeviceKind,
    vectors: u16,
) -> Result<(ConfigSpace, Offsets), LayoutError> {
    let mut space = ConfigSpace::new(PciIdentity {
        vendor: VENDOR,
        device: 0x1040 + kind.id,
        revision: 1,
        class: kind.class,
        subsystem_vendor: VENDOR,
        subsystem: SUBSYSTEM,
    });
    space.add_bar(BAR, BAR_BYTES, BarKind::Memory64)?;

    // PCI 3.0, 6.8.2: control (size minus one), table and pending bits, each offset | BAR index.
    let mut msix = (vectors - 1).to_le_bytes().to_vec();
    msix.extend_from_slice(&Region::MsixTable.range().0.to_le_bytes());
    msix.extend_from_slice(&Region::MsixPending.range().0.to_le_bytes());
    let msix_offset = space.add_capability(CAP_MSIX, &msix, &[0x00, 0xc0])?;

    for region in [Region::Common, Region::Isr, Region::Device] {
        space.add_capability(CAP_VENDOR, &structure(region, 16), &[])?;
    }
    let mut kick = structure(Region::Kick, 20);
    let multiplier = u32::try_from(KICK_BYTES).unwrap_or(0);
    kick.extend_from_slice(&multiplier.to_le_bytes());
    space.add_capability(CAP_VENDOR, &kick, &[])?;

    // The window into the BAR for firmware that does not map it: BAR, offset, length and data are
    // the driver's.
    let mut window = vec![20, 5];
    window.resize(18, 0);
    let writable = [
        0, 0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    ];
    let window = space.add_capability(CAP_VENDOR, &window, &writable)?;
    let offsets = Offsets {
        msix_control: msix_offset + 2,
        window,
    };
    Ok((space, offsets))
}

/// `struct virtio_pci_cap` without its first two bytes.
fn structure(region: Region, length: u8) -> Vec<u8> {
    let (offset, bytes) = region.range();
    let mut body = vec![length, region.config_type(), 0, 0, 0, 0];
    body.extend_from_slice(&offset.to_le_bytes());
    body.extend_from_slice(&bytes.to_le_bytes());
    body
}
