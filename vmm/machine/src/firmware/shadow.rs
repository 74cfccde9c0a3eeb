//! The last 256 KiB below 1 MiB: firmware, RAM in its shadow, or nothing, as the registers PAM0 to PAM6
//! of the host bridge say (Intel 3 Series Express Chipset Family, 5.1.15 to 5.1.21).
//!
//! Each of 13 segments says for itself whether reads go to RAM and whether writes do. What does not go to
//! RAM goes to firmware: the last 128 KiB below 1 MiB read as the end of it, the rest reads as ones,
//! and writes are lost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vm_memory::{Bytes, GuestAddress};
use vmm_kvm::{Backing, KvmError, Overlay, Vm};
use vmm_memory::{RomMemory, Window};

use crate::change_limiter::ChangeLimiter;

/// Number of registers.
pub(crate) const REGISTERS: usize = 7;
/// Memslots that segments have, from number 0 on.
pub(super) const SLOTS: u16 = 13;

const SEGMENTS: usize = 13;
/// First address of segment 0.
const BASE: u64 = 0xc_0000;
/// Of all segments but the last.
const SEGMENT_BYTES: u64 = 0x4000;
/// The last segment, which PAM0 is for.
const LAST: Window = Window {
    base: 0xf_0000,
    bytes: 0x1_0000,
};
/// How much of firmware is shown below 1 MiB.
const ALIAS_BYTES: u64 = 0x2_0000;
const END: u64 = 0x10_0000;

/// RAM that guests see only through segments. Nothing at all is where VGA would be.
pub(crate) const HOLE: Window = Window {
    base: 0xa_0000,
    bytes: END - 0xa_0000,
};

/// What a segment's bits say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Attributes {
    reads_ram: bool,
    writes_ram: bool,
}

/// The segments and their registers.
pub(crate) struct Shadow {
    vm: Arc<Vm>,
    firmware: Arc<RomMemory>,
    registers: Mutex<[u8; REGISTERS]>,
    limiter: Arc<ChangeLimiter>,
}

impl Shadow {
    /// Shows `firmware`, whose end is what is shown.
    ///
    /// # Errors
    /// KVM's.
    pub(super) fn new(
        vm: Arc<Vm>,
        firmware: Arc<RomMemory>,
        limiter: Arc<ChangeLimiter>,
    ) -> Result<Self, KvmError> {
        let shadow = Self {
            vm,
            firmware,
            registers: Mutex::new([0; REGISTERS]),
            limiter,
        };
        for segment in 0..SEGMENTS {
            shadow.show(segment, attributes(&[0; REGISTERS], segment))?;
        }
        Ok(shadow)
    }

    fn lock(&self) -> MutexGuard<'_, [u8; REGISTERS]> {
        // Whole whatever happened to another holder.
        self.registers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What the registers say now is to be so; segments that stay as they are are not touched.
    ///
    /// # Errors
    /// KVM's. Some segments may be changed.
    pub(crate) fn set(&self, registers: [u8; REGISTERS]) -> Result<(), KvmError> {
        let changed = changed(&self.lock(), &registers);
        // Only one writes to registers at a time; reads of memory do not wait.
        self.limiter.wait(changed.len() as u64);
        let mut current = self.lock();
        for segment in changed {
            self.show(segment, attributes(&registers, segment))?;
        }
        *current = registers;
        Ok(())
    }

    fn show(&self, segment: usize, attributes: Attributes) -> Result<(), KvmError> {
        let range = range(segment);
        let backing = if attributes.reads_ram {
            Some(Backing::Ram {
                is_writable: attributes.writes_ram,
            })
        } else {
            self.firmware_at(range)
                .map(|offset| Backing::Rom(Arc::clone(&self.firmware), offset))
        };
        // RAM may be too small to reach here.
        let is_there = match &backing {
            Some(Backing::Ram { .. }) => {
                self.vm.is_ram(range.base) && self.vm.is_ram(range.end() - 1)
            }
            _ => true,
        };
        let overlay = backing
            .filter(|_| is_there)
            .map(|backing| Overlay { range, backing });
        let number = u16::try_from(segment).unwrap_or(u16::MAX);
        self.vm.show(number, overlay)
    }

    /// Where in firmware the content of a range is; `None` when firmware does not reach so far down.
    fn firmware_at(&self, range: Window) -> Option<u64> {
        if range.base < END - ALIAS_BYTES {
            return None;
        }
        (self.firmware.bytes() as u64).checked_sub(END - range.base)
    }

    /// A write that came out of the guest, between 768 KiB and 1 MiB: where only writes go to RAM, no
    /// memslot can do that.
    pub(crate) fn write(&self, address: u64, data: &[u8]) -> bool {
        let Some(segment) = segment_of(address) else {
            return false;
        };
        let is_meant = {
            let registers = self.lock();
            let attributes = attributes(&registers, segment);
            attributes.writes_ram && !attributes.reads_ram
        };
        if is_meant {
            // RAM may be too small to reach here; the write is lost then.
            let _ = self.vm.ram().write_slice(data, GuestAddress(address));
        }
        true
    }
}

fn range(segment: usize) -> Window {
    match u64::try_from(segment) {
        Ok(number) if segment < SEGMENTS - 1 => Window {
            base: BASE + number * SEGMENT_BYTES,
            bytes: SEGMENT_BYTES,
        },
        _ => LAST,
    }
}

fn segment_of(address: u64) -> Option<usize> {
    (0..SEGMENTS).find(|segment| range(*segment).contains(address, 1))
}

/// Segments that are not under `new` what they are under `old`.
fn changed(old: &[u8; REGISTERS], new: &[u8; REGISTERS]) -> Vec<usize> {
    (0..SEGMENTS)
        .filter(|segment| attributes(old, *segment) != attributes(new, *segment))
        .collect()
}

/// PAM0 has the last segment in its upper half; the others have two each, the lower first.
fn attributes(registers: &[u8; REGISTERS], segment: usize) -> Attributes {
    let (register, is_upper) = if segment == SEGMENTS - 1 {
        (0, true)
    } else {
        (1 + segment / 2, segment % 2 == 1)
    };
    let value = registers.get(register).copied().unwrap_or(0);
    let bits = if is_upper { value >> 4 } else { value };
    Attributes {
        reads_ram: bits & 1 != 0,
        writes_ram: bits & 2 != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_follow_each_other_from_768_kib_to_1_mib() {
        let mut next = BASE;
        for segment in 0..SEGMENTS {
            let range = range(segment);
            assert_eq!(range.base, next);
            assert_eq!(segment_of(range.base), Some(segment));
            assert_eq!(segment_of(range.end() - 1), Some(segment));
            next = range.end();
        }
        assert_eq!(next, END);
        assert_eq!((segment_of(BASE - 1), segment_of(END)), (None, None));
    }

    #[test]
    fn each_segment_has_its_bits() {
        let mut registers = [0; REGISTERS];
        registers[0] = 0x10;
        registers[1] = 0x02;
        registers[6] = 0x30;
        let on = |reads_ram, writes_ram| Attributes {
            reads_ram,
            writes_ram,
        };
        assert_eq!(attributes(&registers, 12), on(true, false));
        assert_eq!(attributes(&registers, 0), on(false, true));
        assert_eq!(attributes(&registers, 1), on(false, false));
        assert_eq!(attributes(&registers, 11), on(true, true));
        assert_eq!(attributes(&registers, 10), on(false, false));
        assert_eq!(changed(&[0; REGISTERS], &registers), [0, 11, 12]);
        assert!(changed(&registers, &registers).is_empty());
    }
}
