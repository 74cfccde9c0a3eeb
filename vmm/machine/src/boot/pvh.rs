//! PVH start information (xen/include/public/arch-x86/hvm/start_info.h).

use vmm_memory::{GuestRam, Layout};

use super::error::BootError;
use super::loaded::{Firmware, Initrd};
use super::map::{CMDLINE, memory_map, write};
use crate::fields::Fields;

/// Where `hvm_start_info` lies.
pub(super) const START_INFO: u64 = 0x6000;
const MODULE_LIST: u64 = START_INFO + 0x40;
const MEMORY_MAP: u64 = START_INFO + 0x80;
const MEMORY_MAP_ENTRY_BYTES: usize = 24;

const MAGIC: u32 = 0x336e_c578;
const VERSION: u32 = 1;

pub(super) fn write_start_info(
    ram: &GuestRam,
    layout: &Layout,
    initrd: Option<Initrd>,
    cmdline_bytes: usize,
    firmware: Firmware,
) -> Result<(), BootError> {
    let map = memory_map(layout);
    let mut area = vec![0; 0x80 + map.len() * MEMORY_MAP_ENTRY_BYTES];
    let mut fields = Fields(&mut area);
    fields.put(0, &MAGIC.to_le_bytes());
    fields.put(4, &VERSION.to_le_bytes());
    if let Some(initrd) = initrd {
        fields.put(12, &1u32.to_le_bytes());
        fields.put(16, &MODULE_LIST.to_le_bytes());
        fields.put(0x40, &initrd.address.to_le_bytes());
        fields.put(0x48, &initrd.bytes.to_le_bytes());
    }
    if cmdline_bytes > 0 {
        fields.put(24, &CMDLINE.to_le_bytes());
    }
    fields.put(32, &firmware.rsdp.to_le_bytes());
    fields.put(40, &MEMORY_MAP.to_le_bytes());
    let count = u32::try_from(map.len()).unwrap_or(u32::MAX);
    fields.put(48, &count.to_le_bytes());
    for (index, range) in map.iter().enumerate() {
        let at = 0x80 + index * MEMORY_MAP_ENTRY_BYTES;
        fields.put(at, &range.base.to_le_bytes());
        fields.put(at + 8, &range.bytes.to_le_bytes());
        fields.put(at + 16, &(range.kind as u32).to_le_bytes());
    }
    write(ram, START_INFO, &area)
}
