//! Guest-physical address space of the q35-compatible machine.
//!
//! ```text
//! 0            RAM, at most LOW_RAM_MAX (legacy holes below 1 MiB are RAM here, reserved in e820)
//! 0xB000_0000  ECAM, 256 MiB: configuration space of buses 0 to 255
//! 0xC000_0000  window of 32-bit BARs
//! 0xFEC0_0000  IOAPIC, LAPIC, TSS of KVM, firmware
//! 4 GiB        RAM that did not fit below
//! above RAM    window of RAM that is plugged in later, if the guest may grow
//! above that   window of 64-bit BARs
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

/// RAM that is plugged in later starts and ends at multiples of this. Guests take memory in blocks
/// (Linux on x86: 128 MiB, up to 2 GiB where the end of boot RAM is aligned to that), and a huge page
/// must not be shared with something else.
pub const HOT_PLUG_ALIGN: u64 = 1 << 30;

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

/// Why RAM of a size cannot be laid out.
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
    /// The guest may not grow to less than it starts with.
    #[error("guest memory of {ram_bytes} bytes is more than the {max_bytes} that it may grow to")]
    MaxTooSmall {
        /// RAM at power-on.
        ram_bytes: u64,
        /// RAM that the guest may grow to.
        max_bytes: u64,
    },
    /// The guest's address width is too small for what it may grow to.
    #[error(
        "guest memory that may grow to {max_bytes} bytes does not fit into {address_bits} address bits"
    )]
    MaxTooLarge {
        /// RAM that the guest may grow to.
        max_bytes: u64,
        /// CPUID 0x8000_0008 of the host.
        address_bits: u8,
    },
}

impl LayoutError {
    /// Whether the size that the guest may grow to is at fault, not the one that it starts with.
    #[must_use]
    pub const fn is_of_max(&self) -> bool {
        matches!(self, Self::MaxTooSmall { .. } | Self::MaxTooLarge { .. })
    }
}

/// Where RAM and the windows of BARs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    low_ram: Window,
    high_ram: Window,
    hot_plug: Window,
    mmio32: Window,
    mmio64: Window,
    /// First address that vCPUs cannot name.
    limit: u64,
}

impl Layout {
    /// Lays out `ram_bytes` of RAM for vCPUs with `address_bits` physical address bits.
    ///
    /// # Errors
    /// When the size is not a positive number of pages or does not fit.
    pub fn new(ram_bytes: u64, address_bits: u8) -> Result<Self, LayoutError> {
        Self::with_max(ram_bytes, ram_bytes, address_bits)
    }

    /// As [`Self::new`], with room for RAM to grow to `max_bytes` later.
    ///
    /// # Errors
    /// When a size is not a positive number of pages, does not fit, or the second is below the first.
    pub fn with_max(ram_bytes: u64, max_bytes: u64, address_bits: u8) -> Result<Self, LayoutError> {
        for bytes in [ram_bytes, max_bytes] {
            if bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES) {
                return Err(LayoutError::NotPages(bytes));
            }
        }
        let more_bytes = max_bytes
            .checked_sub(ram_bytes)
            .ok_or(LayoutError::MaxTooSmall {
                ram_bytes,
                max_bytes,
            })?;
        let limit = 1u64 << address_bits.clamp(32, 52);
        let low_ram = Window {
            base: 0,
            bytes: ram_bytes.min(LOW_RAM_MAX),
        };
        let high_ram = place(HIGH_RAM_BASE, ram_bytes - low_ram.bytes, PAGE_BYTES, limit).ok_or(
            LayoutError::TooLarge {
                ram_bytes,
                address_bits,
            },
        )?;
        let hot_plug = place(high_ram.end(), more_bytes, HOT_PLUG_ALIGN, limit).ok_or(
            LayoutError::MaxTooLarge {
                max_bytes,
                address_bits,
            },
        )?;
        let mmio64 = hot_plug.end().next_multiple_of(MMIO64_ALIGN);
        Ok(Self {
            low_ram,
            high_ram,
            hot_plug,
            mmio32: Window {
                base: MMIO32_BASE,
                bytes: MMIO32_END - MMIO32_BASE,
            },
            mmio64: Window {
                base: mmio64,
                bytes: limit.saturating_sub(mmio64).min(MMIO64_BYTES),
            },
            limit,
        })
    }

    /// The same with windows of BARs as large as they can be, for firmware that places BARs where it
    /// wants: from the end of RAM below 4 GiB, and up to the last address. The configuration space
    /// is wherever firmware puts it, then.
    #[must_use]
    pub fn with_open_windows(mut self) -> Self {
        self.mmio32 = Window {
            base: self.low_ram.end(),
            bytes: MMIO32_END - self.low_ram.end(),
        };
        self.mmio64.bytes = self.limit.saturating_sub(self.mmio64.base);
        self
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

    /// Kept free for RAM that is plugged in later; empty when the guest may not grow. In whole
    /// multiples of [`HOT_PLUG_ALIGN`].
    #[must_use]
    pub fn hot_plug(&self) -> Window {
        self.hot_plug
    }

    /// Window of 32-bit BARs.
    #[must_use]
    pub fn mmio32(&self) -> Window {
        self.mmio32
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

    /// RAM dealt out in shares of `shares` bytes, from address 0 up: the number of the share and a
    /// range of it. A share on both sides of the hole below 4 GiB has two ranges. What shares leave
    /// over is nobody's.
    pub fn deal(&self, shares: impl IntoIterator<Item = u64>) -> Vec<(usize, Window)> {
        let mut dealt = Vec::new();
        let mut windows = self.ram();
        let mut free = windows.next();
        for (share, mut wanted) in shares.into_iter().enumerate() {
            while wanted > 0 {
                let Some(window) = free else {
                    return dealt;
                };
                let bytes = wanted.min(window.bytes);
                let base = window.base;
                dealt.push((share, Window { base, bytes }));
                wanted -= bytes;
                free = Some(Window {
                    base: base + bytes,
                    bytes: window.bytes - bytes,
                })
                .filter(|rest| rest.bytes > 0)
                .or_else(|| windows.next());
            }
        }
        dealt
    }
}

/// `bytes` bytes from the first multiple of `align` at or above `from`, both rounded up; `None` when
/// they end above `limit`. Nothing fits everywhere.
fn place(from: u64, bytes: u64, align: u64, limit: u64) -> Option<Window> {
    if bytes == 0 {
        return Some(Window {
            base: from,
            bytes: 0,
        });
    }
    let window = Window {
        base: from.checked_next_multiple_of(align)?,
        bytes: bytes.checked_next_multiple_of(align)?,
    };
    let end = window.base.checked_add(window.bytes)?;
    (end <= limit).then_some(window)
}

#[cfg(test)]
mod tests;
