//! Where boot structures lie below 1 MiB, and the memory map of guests.

use vm_memory::{Bytes, GuestAddress};
use vmm_memory::{ECAM_BASE, ECAM_BYTES, GuestRam, Layout};

use super::error::BootError;

/// Global descriptor table.
pub(super) const GDT: u64 = 0x500;
/// Page tables: one page of level 4, one of level 3, four of level 2.
pub(super) const PAGE_TABLES: u64 = 0x9000;
/// Boot stack, growing down.
pub(super) const STACK_TOP: u64 = 0x8ff0;
/// Command line.
pub(super) const CMDLINE: u64 = 0x2_0000;
/// RAM ends here for guests: the extended BIOS data area follows.
const LOW_END: u64 = 0x9_fc00;
/// ACPI tables, found by guests that search for the RSDP as well.
pub(crate) const ACPI_BASE: u64 = 0xe_0000;
/// Room for ACPI tables.
pub(crate) const ACPI_BYTES: u64 = 0xf000;
/// The page of the generation id.
pub(crate) const GENERATION_PAGE: u64 = ACPI_BASE + ACPI_BYTES;
/// SMBIOS: the entry point, which guests search for from here on, and the structures.
pub(crate) const SMBIOS_BASE: u64 = 0xf_0000;
/// Room for SMBIOS.
pub(crate) const SMBIOS_BYTES: u64 = MP_TABLE as u64 - SMBIOS_BASE;
/// The MultiProcessor table's pointer: guests look for it in the last KiB of the first 640.
pub(crate) const MP_POINTER: u64 = LOW_END;
/// The MultiProcessor table, which has addresses of 32 bits.
pub(crate) const MP_TABLE: u32 = 0xf_e000;
/// Room for it.
pub(crate) const MP_TABLE_BYTES: u64 = HIGH_START - MP_TABLE as u64;
/// RAM above the legacy holes; kernels are loaded here or higher.
pub(super) const HIGH_START: u64 = 0x10_0000;

/// Type of a memory map entry; e820 and PVH number them alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RangeKind {
    /// Usable RAM.
    Ram = 1,
    /// Not to be touched.
    Reserved = 2,
}

/// One entry of the memory map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub base: u64,
    pub bytes: u64,
    pub kind: RangeKind,
}

/// The memory map, ascending.
pub(super) fn memory_map(layout: &Layout) -> Vec<Range> {
    let range = |base: u64, end: u64, kind| Range {
        base,
        bytes: end.saturating_sub(base),
        kind,
    };
    let low_end = layout.low_ram().end();
    let high = layout.high_ram();
    let all = [
        range(0, LOW_END.min(low_end), RangeKind::Ram),
        range(LOW_END, 0xa_0000, RangeKind::Reserved),
        range(ACPI_BASE, HIGH_START, RangeKind::Reserved),
        range(HIGH_START, low_end, RangeKind::Ram),
        range(ECAM_BASE, ECAM_BASE + ECAM_BYTES, RangeKind::Reserved),
        range(high.base, high.end(), RangeKind::Ram),
    ];
    all.into_iter().filter(|range| range.bytes > 0).collect()
}

pub(super) fn write_cmdline(ram: &GuestRam, cmdline: &[u8]) -> Result<(), BootError> {
    let mut line = cmdline.to_vec();
    line.push(0);
    write(ram, CMDLINE, &line)
}

pub(super) fn write(ram: &GuestRam, address: u64, bytes: &[u8]) -> Result<(), BootError> {
    ram.write_slice(bytes, GuestAddress(address))
        .map_err(BootError::Memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_ascends_without_overlap() {
        for ram_bytes in [1 << 20, 64 << 20, 2 << 30, 5 << 30] {
            let map = memory_map(&Layout::new(ram_bytes, 40).unwrap());
            assert!(
                map.windows(2)
                    .all(|pair| pair[0].base + pair[0].bytes <= pair[1].base)
            );
        }
    }
}
