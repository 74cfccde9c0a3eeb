//! Guest-physical address space of the q35-compatible machine.
//!
//! ```text
//! 0            RAM, at most LOW_RAM_MAX (legacy holes below 1 MiB are RAM here, reserved in e820)
//! 0xB000_0000  ECAM, 256 MiB: configuration space of buses 0 to 255
//! 0xC000_0000  window of 32-bit BARs
//! 0xFEC0_0000  IOAPIC, LAPIC, TSS of KVM, firmware
//! 4 GiB        RAM that did not fit below
//! above RAM    window of 64-bit BARs
//! ```

/// RAM below 4 GiB ends here at the latest. A whole number of gibibytes keeps huge pages aligned.
const LOW_RAM_MAX: u64 = 2 << 30;

/// Start of RAM above the 32-bit hole.
const HIGH_RAM_BASE: u64 = 4 << 30;

/// Start of the memory-mapped configuration space (PCI Express Base 5.0, 7.2.2). q35's default.
pub const ECAM_BASE: u64 = 0xb000_0000;

/// Size of the memory-mapped configuration space: 256 buses.
pub const ECAM_BYTES: u64 = 256 << 20;

const MMIO32_BASE: u64 = 0xc000_0000;

/// End of the window of 32-bit BARs; interrupt controllers and firmware lie above.
pub const MMIO32_END: u64 = 0xfec0_0000;

const MMIO64_BYTES: u64 = 32 << 30;
const MMIO64_ALIGN: u64 = 1 << 30;
const PAGE_BYTES: u64 = 4096;

/// A range of guest-physical addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First address.
    pub base: u64,
    /// Length in bytes; may be 0.
    pub bytes: u64,
}

impl Window {
    /// First address behind the window.
    #[must_use]
    pub const fn end(self) -> u64 {
        self.base + self.bytes
    }

    /// Whether all of `bytes` bytes at `address` lie within.
    #[must_use]
    pub fn contains(self, address: u64, bytes: u64) -> bool {
        address >= self.base
            && address
                .checked_add(bytes)
                .is_some_and(|end| end <= self.end())
    }
}

/// Why RAM of a size can not be laid out.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum LayoutError {
    /// Not a positive whole number of pages.
    #[error("guest memory of {0} bytes is not a positive multiple of {PAGE_BYTES} bytes")]
    NotPages(u64),
    /// The guest's address width is too small.
    #[error("guest memory of {ram_bytes} bytes does not fit into {address_bits} address bits")]
    TooLarge {
        /// What was asked for.
        ram_bytes: u64,
        /// CPUID 0x8000_0008 of the host.
        address_bits: u8,
    },
}

/// Where RAM and the windows of BARs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    low_ram: Window,
    high_ram: Window,
    mmio64: Window,
}

impl Layout {
    /// Lays out `ram_bytes` of RAM for vCPUs with `address_bits` physical address bits.
    ///
    /// # Errors
    /// When the size is not a positive number of pages or does not fit.
    pub fn new(ram_bytes: u64, address_bits: u8) -> Result<Self, LayoutError> {
        if ram_bytes == 0 || !ram_bytes.is_multiple_of(PAGE_BYTES) {
            return Err(LayoutError::NotPages(ram_bytes));
        }
        let too_large = LayoutError::TooLarge {
            ram_bytes,
            address_bits,
        };
        let limit = 1u64 << address_bits.clamp(32, 52);
        let low_bytes = ram_bytes.min(LOW_RAM_MAX);
        let high_ram = Window {
            base: HIGH_RAM_BASE,
            bytes: ram_bytes - low_bytes,
        };
        let ram_end = high_ram.base.checked_add(high_ram.bytes).ok_or(too_large)?;
        let fits = high_ram.bytes == 0 || ram_end <= limit;
        let window_base = ram_end.checked_next_multiple_of(MMIO64_ALIGN);
        let (true, Some(window_base)) = (fits, window_base) else {
            return Err(LayoutError::TooLarge {
                ram_bytes,
                address_bits,
            });
        };
        Ok(Self {
            low_ram: Window {
                base: 0,
                bytes: low_bytes,
            },
            high_ram,
            mmio64: Window {
                base: window_base,
                bytes: limit.saturating_sub(window_base).min(MMIO64_BYTES),
            },
        })
    }

    /// RAM from address 0.
    #[must_use]
    pub fn low_ram(&self) -> Window {
        self.low_ram
    }

    /// RAM from 4 GiB; may be empty.
    #[must_use]
    pub fn high_ram(&self) -> Window {
        self.high_ram
    }

    /// Window of 32-bit BARs.
    #[must_use]
    pub fn mmio32(&self) -> Window {
        Window {
            base: MMIO32_BASE,
            bytes: MMIO32_END - MMIO32_BASE,
        }
    }

    /// Window of 64-bit BARs; empty when the guest has no address bits left.
    #[must_use]
    pub fn mmio64(&self) -> Window {
        self.mmio64
    }

    /// The ranges of RAM that are not empty, ascending.
    pub fn ram(&self) -> impl Iterator<Item = Window> {
        [self.low_ram, self.high_ram]
            .into_iter()
            .filter(|window| window.bytes > 0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn nothing_overlaps_and_all_ram_is_there(pages in 1u64..1 << 28, bits in 32u8..=52) {
            let Ok(layout) = Layout::new(pages * PAGE_BYTES, bits) else {
                prop_assert!(pages * PAGE_BYTES + HIGH_RAM_BASE - LOW_RAM_MAX > 1 << bits);
                return Ok(());
            };
            prop_assert_eq!(layout.ram().map(|w| w.bytes).sum::<u64>(), pages * PAGE_BYTES);
            prop_assert!(layout.low_ram().end() <= ECAM_BASE);
            prop_assert!(ECAM_BASE + ECAM_BYTES <= layout.mmio32().base);
            prop_assert!(layout.mmio32().end() <= HIGH_RAM_BASE);
            prop_assert!(layout.high_ram().end() <= layout.mmio64().base);
            if layout.mmio64().bytes > 0 {
                prop_assert!(layout.mmio64().end() <= 1 << bits);
            }
        }
    }

    #[test]
    fn ram_must_be_whole_pages() {
        assert_eq!(Layout::new(0, 40), Err(LayoutError::NotPages(0)));
        assert_eq!(Layout::new(4097, 40), Err(LayoutError::NotPages(4097)));
    }

    #[test]
    fn absurd_sizes_are_refused() {
        let ram_bytes = u64::MAX - 4095;
        assert!(matches!(
            Layout::new(ram_bytes, 52),
            Err(LayoutError::TooLarge { .. })
        ));
    }
}
