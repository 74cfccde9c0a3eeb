//! The zero page of the 64-bit Linux boot protocol (Documentation/arch/x86/zero-page.rst).

use vmm_memory::{GuestRam, Layout};

use super::bzimage::SETUP_HEADER;
use super::error::BootError;
use super::loaded::{Firmware, Initrd, LoadedKernel};
use super::map::{CMDLINE, memory_map, write};
use crate::fields::Fields;

/// Where `boot_params` lies.
pub(super) const ZERO_PAGE: u64 = 0x7000;

const ACPI_RSDP_ADDR: usize = 0x070;
const E820_ENTRIES: usize = 0x1e8;
const BOOT_FLAG: usize = 0x1fe;
const HEADER_MAGIC: usize = 0x202;
const TYPE_OF_LOADER: usize = 0x210;
const LOADFLAGS: usize = 0x211;
const RAMDISK_IMAGE: usize = 0x218;
const RAMDISK_SIZE: usize = 0x21c;
const CMD_LINE_PTR: usize = 0x228;
const CMDLINE_SIZE: usize = 0x238;
const E820_TABLE: usize = 0x2d0;
const E820_ENTRY_BYTES: usize = 20;

/// A boot loader without a number of its own.
const LOADER_UNDEFINED: u8 = 0xff;
const LOADED_HIGH: u8 = 1;

pub(super) fn write_zero_page(
    ram: &GuestRam,
    layout: &Layout,
    kernel: &LoadedKernel,
    initrd: Option<Initrd>,
    cmdline_bytes: usize,
    firmware: Firmware,
) -> Result<(), BootError> {
    let mut page = vec![0u8; 4096];
    let mut fields = Fields(&mut page);
    match &kernel.setup_header {
        Some(header) => fields.put(SETUP_HEADER, header),
        None => {
            fields.put(BOOT_FLAG, &0xaa55u16.to_le_bytes());
            fields.put(HEADER_MAGIC, b"HdrS");
        }
    }
    fields.put(TYPE_OF_LOADER, &[LOADER_UNDEFINED]);
    fields.put(LOADFLAGS, &[LOADED_HIGH]);
    fields.put(ACPI_RSDP_ADDR, &firmware.rsdp.to_le_bytes());
    fields.put(CMD_LINE_PTR, &low_word(CMDLINE)?);
    fields.put(CMDLINE_SIZE, &low_word(cmdline_bytes as u64)?);
    if let Some(initrd) = initrd {
        fields.put(RAMDISK_IMAGE, &low_word(initrd.address)?);
        fields.put(RAMDISK_SIZE, &low_word(initrd.bytes)?);
    }
    let map = memory_map(layout);
    for (index, range) in map.iter().enumerate() {
        let at = E820_TABLE + index * E820_ENTRY_BYTES;
        fields.put(at, &range.base.to_le_bytes());
        fields.put(at + 8, &range.bytes.to_le_bytes());
        fields.put(at + 16, &(range.kind as u32).to_le_bytes());
    }
    let count = u8::try_from(map.len()).unwrap_or(u8::MAX);
    fields.put(E820_ENTRIES, &[count]);
    write(ram, ZERO_PAGE, &page)
}

fn low_word(value: u64) -> Result<[u8; 4], BootError> {
    u32::try_from(value)
        .map(u32::to_le_bytes)
        .map_err(|_| BootError::Malformed("an address above 4 GiB"))
}
