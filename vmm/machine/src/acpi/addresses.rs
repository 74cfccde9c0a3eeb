//! Addresses of the chipset, as ACPI gives them to guests.

use vmm_memory::{ECAM_BASE, ECAM_BYTES, Layout, MMIO32_END, Window};

use super::hardware::PM_BASE;

/// Firmware that has a window of 32-bit BARs below configuration space has it from here on, or from
/// the end of RAM.
const SMALL_WINDOW_BASE: u64 = 2 << 30;

/// Addresses that firmware may choose; a machine without has fixed ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    /// First address of configuration space.
    pub(crate) ecam: u64,
    /// First port of the fixed hardware.
    pub(crate) power: u16,
    /// Window of 32-bit BARs.
    pub(crate) small: Window,
    /// Window of 64-bit BARs; may be empty.
    pub(crate) large: Window,
}

impl Addresses {
    /// Those of a machine without firmware.
    pub(crate) fn fixed(layout: &Layout) -> Self {
        Self {
            ecam: ECAM_BASE,
            power: PM_BASE,
            small: layout.mmio32(),
            large: layout.mmio64(),
        }
    }

    /// Those that firmware chose; `layout` has open windows. Firmware has its window of 32-bit BARs on
    /// that side of configuration space where there is more room.
    pub(crate) fn chosen(layout: &Layout, ecam: u64, power: u16) -> Self {
        let lowest = layout.low_ram().end().max(SMALL_WINDOW_BASE);
        let ecam_end = ecam.saturating_add(ECAM_BYTES);
        let between = |base: u64, end: u64| Window {
            base,
            bytes: end.saturating_sub(base),
        };
        let below = between(lowest, ecam.min(MMIO32_END));
        let above = between(ecam_end.max(lowest), MMIO32_END);
        Self {
            ecam,
            power,
            small: if below.bytes > above.bytes {
                below
            } else {
                above
            },
            large: layout.mmio64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_of_small_bars_is_where_firmware_has_it() {
        let layout = Layout::new(512 << 20, 40).unwrap().with_open_windows();
        // SeaBIOS, and OVMF as of 2022.
        let small = Addresses::chosen(&layout, 0xb000_0000, 0x600).small;
        assert_eq!((small.base, small.end()), (0xc000_0000, 0xfec0_0000));
        // OVMF since.
        let small = Addresses::chosen(&layout, 0xe000_0000, 0x600).small;
        assert_eq!((small.base, small.end()), (0x8000_0000, 0xe000_0000));
        // Nonsense of a guest's.
        let small = Addresses::chosen(&layout, u64::MAX, 0).small;
        assert_eq!((small.base, small.end()), (0x8000_0000, 0xfec0_0000));
    }
}
