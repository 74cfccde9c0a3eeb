//! Where the chipset answers now: what firmware moves, read at every exit.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use vmm_memory::{ECAM_BASE, ECAM_BYTES, Window};

use crate::acpi::PM_BASE;

/// PCIEXBAR: enabled, and how much of configuration space it shows.
const ECAM_ENABLED: u64 = 1;
const ECAM_LENGTH_SHIFT: u32 = 1;
/// Bits of an address of 36 bits, in units of the smallest length.
const ECAM_ADDRESS: u64 = 0xf_fc00_0000;
/// RCBA: enabled.
const ROOT_COMPLEX_ENABLED: u32 = 1;
const ROOT_COMPLEX_ADDRESS: u32 = 0xffff_c000;
const ROOT_COMPLEX_BYTES: u64 = 16 << 10;
/// ACPI hardware is decoded.
const POWER_ENABLED: u32 = 1 << 16;

/// Registers of the chipset that say where something is.
#[derive(Debug)]
pub(crate) struct Decode {
    /// PCIEXBAR.
    ecam: AtomicU64,
    /// PMBASE with [`POWER_ENABLED`].
    power: AtomicU32,
    /// RCBA.
    root_complex: AtomicU32,
}

impl Decode {
    /// Nothing answers yet.
    pub(crate) fn power_on() -> Self {
        Self {
            ecam: AtomicU64::new(0),
            power: AtomicU32::new(0),
            root_complex: AtomicU32::new(0),
        }
    }

    /// Everything is where a machine without firmware has it.
    pub(crate) fn fixed() -> Self {
        let decode = Self::power_on();
        decode.set_ecam(ECAM_BASE | ECAM_ENABLED);
        decode.set_power(PM_BASE, true);
        decode
    }

    /// PCIEXBAR is written.
    pub(crate) fn set_ecam(&self, register: u64) {
        self.ecam.store(register, Ordering::Relaxed);
    }

    /// PMBASE is written, or ACPI is enabled.
    pub(crate) fn set_power(&self, base: u16, is_enabled: bool) {
        let enabled = if is_enabled { POWER_ENABLED } else { 0 };
        self.power
            .store(u32::from(base) | enabled, Ordering::Relaxed);
    }

    /// RCBA is written.
    pub(crate) fn set_root_complex(&self, register: u32) {
        self.root_complex.store(register, Ordering::Relaxed);
    }

    /// What is shown of configuration space, and where.
    fn ecam(&self) -> Option<Window> {
        let register = self.ecam.load(Ordering::Relaxed);
        // 256, 128 or 64 MiB; the fourth value is reserved.
        let length = register >> ECAM_LENGTH_SHIFT & 3;
        let bytes = ECAM_BYTES >> length;
        let base = register & ECAM_ADDRESS & !(bytes - 1);
        (register & ECAM_ENABLED != 0 && length < 3).then_some(Window { base, bytes })
    }

    /// Offset within configuration space of an address.
    pub(crate) fn ecam_offset(&self, address: u64) -> Option<u64> {
        let window = self.ecam()?;
        let offset = address.checked_sub(window.base)?;
        (offset < window.bytes).then_some(offset)
    }

    /// First address of configuration space; the usual one as long as there is none.
    pub(crate) fn ecam_base(&self) -> u64 {
        self.ecam().map_or(ECAM_BASE, |window| window.base)
    }

    /// First port of ACPI hardware, if it is decoded.
    pub(crate) fn power(&self) -> Option<u16> {
        let register = self.power.load(Ordering::Relaxed);
        let [low, high, ..] = register.to_le_bytes();
        (register & POWER_ENABLED != 0).then_some(u16::from_le_bytes([low, high]))
    }

    /// Offset within the registers of the root complex of an address.
    pub(crate) fn root_complex_offset(&self, address: u64) -> Option<u64> {
        let register = self.root_complex.load(Ordering::Relaxed);
        if register & ROOT_COMPLEX_ENABLED == 0 {
            return None;
        }
        let offset = address.checked_sub(u64::from(register & ROOT_COMPLEX_ADDRESS))?;
        (offset < ROOT_COMPLEX_BYTES).then_some(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_space_is_as_long_and_where_firmware_says() {
        let decode = Decode::power_on();
        assert_eq!(decode.ecam_offset(ECAM_BASE), None);
        decode.set_ecam(0xe000_0001);
        assert_eq!(decode.ecam_offset(0xefff_ffff), Some(0xfff_ffff));
        assert_eq!(decode.ecam_offset(0xf000_0000), None);
        decode.set_ecam(0xe400_0005);
        assert_eq!(decode.ecam_base(), 0xe400_0000);
        assert_eq!(decode.ecam_offset(0xe7ff_ffff), Some(0x3ff_ffff));
        assert_eq!(decode.ecam_offset(0xe800_0000), None);
        decode.set_ecam(0xe000_0007);
        assert_eq!(decode.ecam_offset(0xe000_0000), None);
        assert_eq!(Decode::fixed().ecam_offset(ECAM_BASE + 5), Some(5));
    }

    #[test]
    fn what_is_not_enabled_does_not_answer() {
        let decode = Decode::power_on();
        decode.set_power(0xb000, false);
        assert_eq!(decode.power(), None);
        decode.set_power(0xb000, true);
        assert_eq!(decode.power(), Some(0xb000));
        decode.set_root_complex(0xfed1_c000);
        assert_eq!(decode.root_complex_offset(0xfed1_c000), None);
        decode.set_root_complex(0xfed1_c001);
        assert_eq!(decode.root_complex_offset(0xfed1_f410), Some(0x3410));
        assert_eq!(decode.root_complex_offset(0xfed2_0000), None);
    }
}
