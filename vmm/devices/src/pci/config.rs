//! Configuration space of a type 0 function: identity, command, BARs, capability list.
//!
//! Registers are bytes with a write mask, so that every width and offset of access means the same.
//! BAR sizing needs no state of its own: the low bits of a BAR are not writable.

use super::function::{BarKind, BarWindow, CONVENTIONAL_BYTES, ConfigImage};

/// Bytes that hold registers; the rest of the 4 KiB reads as zero (no extended capabilities).
const SPACE_BYTES: usize = CONVENTIONAL_BYTES;

const COMMAND: usize = 0x04;
const STATUS: usize = 0x06;
const CACHE_LINE: usize = 0x0c;
const BAR_0: usize = 0x10;
const CAPABILITIES: usize = 0x34;
const INTERRUPT_LINE: usize = 0x3c;
const FIRST_CAPABILITY: usize = 0x40;

/// `COMMAND.MEMORY`: the function answers in memory space.
const COMMAND_MEMORY: u16 = 1 << 1;
/// `COMMAND.MASTER`: the function may access memory.
const COMMAND_MASTER: u16 = 1 << 2;
/// Memory, bus master, parity, SERR, INTx disable. No I/O BARs, so no I/O bit.
const COMMAND_WRITABLE: u16 = COMMAND_MEMORY | COMMAND_MASTER | 1 << 6 | 1 << 8 | 1 << 10;
/// `STATUS.CAP_LIST`.
const STATUS_CAPABILITIES: u8 = 1 << 4;

/// Identity of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PciIdentity {
    /// Vendor id.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// Revision ID (offset 8).
    pub revision: u8,
    /// Class, subclass and programming interface, as 0xCCSSPP.
    pub class: u32,
    /// Subsystem vendor id.
    pub subsystem_vendor: u16,
    /// Subsystem id.
    pub subsystem: u16,
}

/// Configuration space could not be laid out as asked: a mistake of the device's author.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The capabilities are longer than configuration space.
    #[error("capability {id:#04x} does not fit into configuration space")]
    CapabilitySpace {
        /// Capability id.
        id: u8,
    },
    /// Index, size or place of a BAR cannot be.
    #[error("BAR {index} of {size} bytes cannot be laid out")]
    Bar {
        /// The BAR's index.
        index: usize,
        /// The BAR's size.
        size: u64,
    },
}

#[derive(Clone, Copy, Debug)]
struct Bar {
    index: usize,
    size: u64,
}

/// Configuration space of one function.
#[derive(Clone, Debug)]
pub struct ConfigSpace {
    bytes: [u8; SPACE_BYTES],
    writable: [u8; SPACE_BYTES],
    power_on: [u8; SPACE_BYTES],
    bars: Vec<Bar>,
    /// Where the next capability goes.
    free: usize,
    /// Where the offset of the next capability is written.
    link: usize,
}

impl ConfigSpace {
    /// A function without BARs and capabilities.
    pub fn new(identity: PciIdentity) -> Self {
        let mut space = Self {
            bytes: [0; SPACE_BYTES],
            writable: [0; SPACE_BYTES],
            power_on: [0; SPACE_BYTES],
            bars: Vec::new(),
            free: FIRST_CAPABILITY,
            link: CAPABILITIES,
        };
        let [programming, subclass, class, _] = identity.class.to_le_bytes();
        space.fix(0x00, &identity.vendor.to_le_bytes());
        space.fix(0x02, &identity.device.to_le_bytes());
        space.fix(0x08, &[identity.revision, programming, subclass, class]);
        space.fix(0x2c, &identity.subsystem_vendor.to_le_bytes());
        space.fix(0x2e, &identity.subsystem.to_le_bytes());
        space.allow(COMMAND, &COMMAND_WRITABLE.to_le_bytes());
        space.allow(CACHE_LINE, &[0xff]);
        space.allow(INTERRUPT_LINE, &[0xff]);
        space
    }

    /// Adds a memory BAR.
    ///
    /// # Errors
    /// The size is no power of two of at least 4 KiB, or the index is taken or does not exist.
    pub fn add_bar(&mut self, index: usize, size: u64, kind: BarKind) -> Result<(), LayoutError> {
        let error = LayoutError::Bar { index, size };
        let wide = kind == BarKind::Memory64;
        let last = if wide { index + 1 } else { index };
        let taken = self
            .bar_windows()
            .any(|(window, end)| index <= end && last >= window.index);
        let fits = wide || size <= 1 << 31;
        if !size.is_power_of_two() || size < 0x1000 || !fits || last > 5 || taken {
            return Err(error);
        }
        let at = BAR_0 + 4 * index;
        let mask = (!(size - 1)).to_le_bytes();
        if wide {
            self.fix(at, &[0b100]);
            self.allow(at, &mask);
        } else {
            self.allow(at, mask.get(..4).unwrap_or_default());
        }
        self.bars.push(Bar { index, size });
        self.bars.sort_by_key(|bar| bar.index);
        Ok(())
    }

    /// Appends a capability: `body` follows the two bytes of id and link; `writable` (as long as
    /// `body`, or shorter) has ones where the guest may write. Returns the capability's offset.
    ///
    /// # Errors
    /// There is no room left.
    pub fn add_capability(
        &mut self,
        id: u8,
        body: &[u8],
        writable: &[u8],
    ) -> Result<u16, LayoutError> {
        let at = self.free;
        let end = at + 2 + body.len();
        let (Ok(offset), true) = (u8::try_from(at), end <= SPACE_BYTES) else {
            return Err(LayoutError::CapabilitySpace { id });
        };
        self.fix(at, &[id, 0]);
        self.fix(at + 2, body);
        self.allow(at + 2, writable);
        self.fix(self.link, &[offset]);
        self.fix(STATUS, &[STATUS_CAPABILITIES]);
        self.link = at + 1;
        self.free = end.next_multiple_of(4);
        Ok(u16::from(offset))
    }

    /// Reads `data.len()` bytes; bytes without register are zero.
    pub fn read(&self, offset: u16, data: &mut [u8]) {
        let start = usize::from(offset);
        for (index, byte) in data.iter_mut().enumerate() {
            *byte = self.bytes.get(start + index).copied().unwrap_or(0);
        }
    }

    /// Writes the writable bits of `data`.
    pub fn write(&mut self, offset: u16, data: &[u8]) {
        let start = usize::from(offset);
        for (index, value) in data.iter().enumerate() {
            let at = start + index;
            if let (Some(byte), Some(mask)) = (self.bytes.get_mut(at), self.writable.get(at)) {
                *byte = *byte & !mask | value & mask;
            }
        }
    }

    /// Writes `data` where the guest may not: registers that a function keeps up itself.
    pub fn poke(&mut self, offset: u16, data: &[u8]) {
        let start = usize::from(offset);
        for (index, value) in data.iter().enumerate() {
            if let Some(byte) = self.bytes.get_mut(start + index) {
                *byte = *value;
            }
        }
    }

    /// The 16-bit register at `offset`.
    pub fn u16_at(&self, offset: u16) -> u16 {
        let mut bytes = [0; 2];
        self.read(offset, &mut bytes);
        u16::from_le_bytes(bytes)
    }

    /// The 32-bit register at `offset`.
    pub fn u32_at(&self, offset: u16) -> u32 {
        let mut bytes = [0; 4];
        self.read(offset, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    /// Whether the guest lets the function access memory.
    pub fn is_bus_master(&self) -> bool {
        self.u16_at(0x04) & COMMAND_MASTER != 0
    }

    /// The BARs as they are programmed now.
    pub fn bars(&self) -> Vec<BarWindow> {
        self.bar_windows().map(|(window, _)| window).collect()
    }

    /// Programs a BAR; an index without BAR is ignored, bits below the size are cut off.
    pub fn set_bar(&mut self, index: usize, base: u64) {
        let Some((window, _)) = self.bar_windows().find(|(w, _)| w.index == index) else {
            return;
        };
        let bytes = base.to_le_bytes();
        let width = if window.kind == BarKind::Memory64 {
            8
        } else {
            4
        };
        let Ok(offset) = u16::try_from(BAR_0 + 4 * index) else {
            return;
        };
        self.write(offset, bytes.get(..width).unwrap_or_default());
    }

    /// All registers, as [`load`](Self::load) takes them.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes that reads return.
    pub fn image(&self) -> ConfigImage<'_> {
        ConfigImage {
            bytes: &self.bytes,
            beyond: 0,
        }
    }

    /// Takes registers as they were saved. False, and nothing is changed, when they are those of
    /// another function: whatever a guest cannot write has to be equal.
    pub fn load(&mut self, saved: &[u8]) -> bool {
        let fixed_differs = |((now, saved), mask): ((&u8, &u8), &u8)| (now ^ saved) & !mask != 0;
        let Ok(saved) = <[u8; SPACE_BYTES]>::try_from(saved) else {
            return false;
        };
        let registers = self.bytes.iter().zip(&saved).zip(&self.writable);
        if registers.into_iter().any(fixed_differs) {
            return false;
        }
        self.bytes = saved;
        true
    }

    /// Goes back to the state after power-on.
    pub fn reset(&mut self) {
        self.bytes = self.power_on;
    }

    /// The BARs, each with the last index it takes.
    fn bar_windows(&self) -> impl Iterator<Item = (BarWindow, usize)> + '_ {
        let decoded = self.u16_at(0x04) & COMMAND_MEMORY != 0;
        self.bars.iter().map(move |bar| {
            let at = u16::try_from(BAR_0 + 4 * bar.index).unwrap_or(0);
            let low = u64::from(self.u32_at(at));
            let wide = low & 0b110 == 0b100;
            let high = if wide {
                u64::from(self.u32_at(at + 4))
            } else {
                0
            };
            let window = BarWindow {
                index: bar.index,
                base: (high << 32 | low) & !(bar.size - 1),
                size: bar.size,
                kind: if wide {
                    BarKind::Memory64
                } else {
                    BarKind::Memory32
                },
                decoded,
            };
            (window, if wide { bar.index + 1 } else { bar.index })
        })
    }

    /// Sets bytes for ever: they are there after a reset as well.
    pub(crate) fn fix(&mut self, at: usize, bytes: &[u8]) {
        for (index, value) in bytes.iter().enumerate() {
            if let (Some(now), Some(later)) = (
                self.bytes.get_mut(at + index),
                self.power_on.get_mut(at + index),
            ) {
                *now = *value;
                *later = *value;
            }
        }
    }

    /// Lets the guest write where `mask` has ones.
    pub(crate) fn allow(&mut self, at: usize, mask: &[u8]) {
        for (index, value) in mask.iter().enumerate() {
            if let Some(byte) = self.writable.get_mut(at + index) {
                *byte = *value;
            }
        }
    }
}

#[cfg(test)]
mod tests;
