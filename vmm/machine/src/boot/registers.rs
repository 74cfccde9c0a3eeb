//! Registers of the boot processor for both protocols, and the tables they point to.

use vmm_kvm::{Segment, StartState};
use vmm_memory::GuestRam;

use super::error::BootError;
use super::map::{GDT, PAGE_TABLES, STACK_TOP, write};

const CR0_PROTECTED: u64 = 1;
/// Extension type, always set.
const CR0_EXTENSION: u64 = 1 << 4;
const CR0_PAGING: u64 = 1 << 31;
const CR4_PHYSICAL_ADDRESS_EXTENSION: u64 = 1 << 5;
const EFER_LONG_MODE: u64 = 1 << 8 | 1 << 10;

const PAGE_BYTES: u64 = 4096;
/// Present and writable.
const TABLE: u64 = 3;
/// Present, writable, 2 MiB.
const LARGE_PAGE: u64 = 0x83;
const LARGE_PAGE_BYTES: u64 = 2 << 20;
/// The first 4 GiB are mapped one to one.
const MAPPED_GIB: u64 = 4;

/// Descriptors at the selectors that the Linux boot protocol names (0x10, 0x18), and a task.
const DESCRIPTORS_LONG: [u64; 5] = [
    0,
    0,
    0x00af_9b00_0000_ffff,
    0x00cf_9300_0000_ffff,
    0x0000_8b00_0000_0067,
];
const DESCRIPTORS_PROTECTED: [u64; 5] = [
    0,
    0,
    0x00cf_9b00_0000_ffff,
    0x00cf_9300_0000_ffff,
    0x0000_8b00_0000_0067,
];

/// Code: execute, read, accessed. Data: read, write, accessed. Task: busy 32-bit TSS.
const KIND_CODE: u8 = 0xb;
const KIND_DATA: u8 = 0x3;
const KIND_TASK: u8 = 0xb;

/// 64-bit Linux boot protocol: long mode, paging one to one, RSI at the zero page.
pub(super) fn long_mode(
    ram: &GuestRam,
    entry: u64,
    zero_page: u64,
) -> Result<StartState, BootError> {
    write_gdt(ram, &DESCRIPTORS_LONG)?;
    write_page_tables(ram)?;
    Ok(StartState {
        rip: entry,
        rsp: STACK_TOP,
        rsi: zero_page,
        cr0: CR0_PAGING | CR0_EXTENSION | CR0_PROTECTED,
        cr3: PAGE_TABLES,
        cr4: CR4_PHYSICAL_ADDRESS_EXTENSION,
        efer: EFER_LONG_MODE,
        ..start_state(true)
    })
}

/// PVH: 32-bit protected mode without paging, EBX at the start information.
pub(super) fn protected_mode(
    ram: &GuestRam,
    entry: u64,
    start_info: u64,
) -> Result<StartState, BootError> {
    write_gdt(ram, &DESCRIPTORS_PROTECTED)?;
    Ok(StartState {
        rip: entry,
        rbx: start_info,
        cr0: CR0_EXTENSION | CR0_PROTECTED,
        ..start_state(false)
    })
}

fn start_state(long: bool) -> StartState {
    StartState {
        rip: 0,
        rsp: 0,
        rsi: 0,
        rbx: 0,
        cr0: 0,
        cr3: 0,
        cr4: 0,
        efer: 0,
        code: Segment {
            selector: 0x10,
            limit: u32::MAX,
            kind: KIND_CODE,
            long,
            code_or_data: true,
        },
        data: Segment {
            selector: 0x18,
            limit: u32::MAX,
            kind: KIND_DATA,
            long: false,
            code_or_data: true,
        },
        task: Segment {
            selector: 0x20,
            limit: 0x67,
            kind: KIND_TASK,
            long: false,
            code_or_data: false,
        },
        gdt: (GDT, 5 * 8 - 1),
    }
}

fn write_gdt(ram: &GuestRam, descriptors: &[u64; 5]) -> Result<(), BootError> {
    let bytes: Vec<u8> = descriptors.iter().flat_map(|d| d.to_le_bytes()).collect();
    write(ram, GDT, &bytes)
}

fn write_page_tables(ram: &GuestRam) -> Result<(), BootError> {
    let level3 = PAGE_TABLES + PAGE_BYTES;
    let level2 = level3 + PAGE_BYTES;
    write(ram, PAGE_TABLES, &(level3 | TABLE).to_le_bytes())?;
    let pointers: Vec<u8> = (0..MAPPED_GIB)
        .flat_map(|index| ((level2 + index * PAGE_BYTES) | TABLE).to_le_bytes())
        .collect();
    write(ram, level3, &pointers)?;
    let pages: Vec<u8> = (0..MAPPED_GIB * 512)
        .flat_map(|index| ((index * LARGE_PAGE_BYTES) | LARGE_PAGE).to_le_bytes())
        .collect();
    write(ram, level2, &pages)
}
