//! The structures of this machine. Sections are those of DSP0134, version 3.0.

use proto_machine::smbios::{BaseBoardInfo, ChassisInfo, SystemInfo};
use vmm_kvm::CpuTopology;
use vmm_memory::{Layout, Window};

use super::structure::{Structure, Table};

const MAKER: &str = "kvmlet";
/// A field that is other than all that the specification has a value for.
const OTHER: u8 = 1;
const UNKNOWN: u8 = 2;
const SAFE: u8 = 3;
/// The count does not fit into a byte and stands in the word (7.5.6).
const COUNT_IN_WORD: u8 = 0xff;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Linux takes machines of before 2008 for ones with broken PCI descriptions.
const BIOS_DATE: &str = "01/01/2026";

/// BIOS information (7.1): it says nothing but that this is a virtual machine.
pub(super) fn bios() -> Structure {
    const CHARACTERISTICS_NOT_SUPPORTED: u64 = 1 << 3;
    const VIRTUAL_MACHINE: u8 = 1 << 4;
    Structure::new(0)
        .string(MAKER)
        .string(env!("CARGO_PKG_VERSION"))
        .word(0xe800)
        .string(BIOS_DATE)
        .byte(0)
        .quad(CHARACTERISTICS_NOT_SUPPORTED)
        .bytes(&[0, VIRTUAL_MACHINE])
        // Releases of the BIOS, and of an embedded controller that is not there.
        .bytes(&[0, 0, 0xff, 0xff])
}

/// System information (7.2).
pub(super) fn system(info: &SystemInfo) -> Structure {
    const WOKEN_BY_POWER_SWITCH: u8 = 6;
    Structure::new(1)
        .string(&info.manufacturer)
        .string(&info.product)
        .string(&info.version)
        .string(&info.serial)
        .bytes(&guid(info.uuid))
        .byte(WOKEN_BY_POWER_SWITCH)
        .string(&info.sku)
        .string(&info.family)
}

/// The first three fields of a UUID are little-endian here (7.2.1).
fn guid(uuid: [u8; 16]) -> [u8; 16] {
    let [a, b, c, d, e, f, g, h, rest @ ..] = uuid;
    let [i, j, k, l, m, n, o, p] = rest;
    [d, c, b, a, f, e, h, g, i, j, k, l, m, n, o, p]
}

/// Base board information (7.3), in the chassis with this handle.
pub(super) fn base_board(info: &BaseBoardInfo, chassis: u16) -> Structure {
    const HOSTS_OTHERS: u8 = 1;
    const MOTHERBOARD: u8 = 10;
    Structure::new(2)
        .string(&info.manufacturer)
        .string(&info.product)
        .string(&info.version)
        .string(&info.serial)
        .string(&info.asset)
        .byte(HOSTS_OTHERS)
        .string(&info.location)
        .word(chassis)
        .byte(MOTHERBOARD)
        .byte(0)
}

/// Chassis (7.4).
pub(super) fn chassis(info: &ChassisInfo) -> Structure {
    Structure::new(3)
        .string(&info.manufacturer)
        .byte(OTHER)
        .string(&info.version)
        .string(&info.serial)
        .string(&info.asset)
        // Boot-up, power supply, thermal, security.
        .bytes(&[SAFE, SAFE, SAFE, UNKNOWN])
        .double(0)
        // Height and power cords; nothing contained, in records of no length.
        .bytes(&[0; 4])
        .string(&info.sku)
}

/// Processor information (7.5) of one socket. `id` is EAX and EDX of CPUID 1, in this order.
pub(super) fn processor(socket: u32, topology: CpuTopology, id: [u8; 8]) -> Structure {
    const CENTRAL: u8 = 3;
    const POPULATED_AND_ENABLED: u8 = 1 << 6 | 1;
    const NO_CACHE: u16 = 0xffff;
    const SIXTY_FOUR_BITS: u16 = 1 << 2;
    let is_there = socket < topology.sockets();
    let cores = topology.cores();
    let threads = cores * topology.threads();
    let mut characteristics = SIXTY_FOUR_BITS;
    if cores > 1 {
        characteristics |= 1 << 3;
    }
    if threads > cores {
        characteristics |= 1 << 4;
    }
    let small = |count: u32| u8::try_from(count).unwrap_or(COUNT_IN_WORD);
    let large = |count: u32| u16::try_from(count).unwrap_or(u16::MAX);
    Structure::new(4)
        .string(&format!("CPU {socket}"))
        .bytes(&[CENTRAL, OTHER])
        .string(MAKER)
        .bytes(&id)
        .string("KVM")
        // Voltage, clock and speeds are unknown.
        .bytes(&[0; 7])
        .byte(if is_there { POPULATED_AND_ENABLED } else { 0 })
        .byte(OTHER)
        .word(NO_CACHE)
        .word(NO_CACHE)
        .word(NO_CACHE)
        // Serial number, asset tag, part number.
        .bytes(&[0; 3])
        .bytes(&[small(cores), small(cores), small(threads)])
        .word(characteristics)
        .word(OTHER.into())
        .word(large(cores))
        .word(large(cores))
        .word(large(threads))
}

/// OEM strings (7.12).
pub(super) fn oem_strings(texts: &[String]) -> Structure {
    let mut structure = Structure::new(11);
    let mut count = 0;
    for text in texts {
        count = structure.add_string(text).max(count);
    }
    structure.byte(count)
}

/// RAM: an array (7.17) of modules (7.18), mapped where `layout` says (7.20).
pub(super) fn add_memory(table: &mut Table, layout: &Layout) {
    let ram_bytes = layout.ram().map(|range| range.bytes).sum();
    let module_bytes = module_bytes(ram_bytes);
    let count = ram_bytes.div_ceil(module_bytes);
    let array = table.add(memory_array(ram_bytes, count));
    for number in 0..count {
        let bytes = module_bytes.min(ram_bytes - number * module_bytes);
        table.add(memory_module(array, number, bytes));
    }
    for range in layout.ram() {
        table.add(mapped_range(array, range));
    }
}

/// Modules of 16 GiB, larger ones if these were too many.
fn module_bytes(ram_bytes: u64) -> u64 {
    const USUAL: u64 = 16 * GIB;
    const MOST: u64 = 512;
    ram_bytes.div_ceil(MOST).next_multiple_of(GIB).max(USUAL)
}

fn memory_array(ram_bytes: u64, modules: u64) -> Structure {
    const ON_SYSTEM_BOARD: u8 = 3;
    const SYSTEM_MEMORY: u8 = 3;
    const MULTI_BIT_ECC: u8 = 6;
    const CAPACITY_IS_EXTENDED: u32 = 0x8000_0000;
    const NO_ERROR_STRUCTURE: u16 = 0xfffe;
    let capacity = u32::try_from(ram_bytes / KIB)
        .ok()
        .filter(|capacity| *capacity < CAPACITY_IS_EXTENDED);
    Structure::new(16)
        .bytes(&[ON_SYSTEM_BOARD, SYSTEM_MEMORY, MULTI_BIT_ECC])
        .double(capacity.unwrap_or(CAPACITY_IS_EXTENDED))
        .word(NO_ERROR_STRUCTURE)
        .word(u16::try_from(modules).unwrap_or(u16::MAX))
        .quad(if capacity.is_some() { 0 } else { ram_bytes })
}

fn memory_module(array: u16, number: u64, bytes: u64) -> Structure {
    const NO_ERROR_STRUCTURE: u16 = 0xfffe;
    const WIDTH_UNKNOWN: u16 = 0xffff;
    const SIZE_IS_EXTENDED: u16 = 0x7fff;
    /// The size is in KiB.
    const SMALL: u16 = 1 << 15;
    const DIMM: u8 = 9;
    const RAM: u8 = 7;
    const DETAIL_OTHER: u16 = 1 << 1;
    let whole = u32::try_from(bytes / MIB).unwrap_or(u32::MAX);
    let short = |value: u64| {
        u16::try_from(value)
            .ok()
            .filter(|size| *size < SIZE_IS_EXTENDED)
    };
    let (size, extended) = match (short(bytes / MIB), short(bytes / KIB)) {
        (_, Some(kib)) if !bytes.is_multiple_of(MIB) => (kib | SMALL, 0),
        (Some(mib), _) => (mib, 0),
        (None, _) => (SIZE_IS_EXTENDED, whole),
    };
    Structure::new(17)
        .word(array)
        .word(NO_ERROR_STRUCTURE)
        .word(WIDTH_UNKNOWN)
        .word(WIDTH_UNKNOWN)
        .word(size)
        .byte(DIMM)
        .byte(0)
        .string(&format!("DIMM {number}"))
        .string("")
        .byte(RAM)
        .word(DETAIL_OTHER)
        .word(0)
        .string(MAKER)
        // Serial number, asset tag, part number; attributes.
        .bytes(&[0; 4])
        .double(extended)
        // Speed and voltages are unknown.
        .bytes(&[0; 8])
}

fn mapped_range(array: u16, range: Window) -> Structure {
    const IS_EXTENDED: u32 = u32::MAX;
    let last = range.end() - 1;
    let short = |address: u64| {
        u32::try_from(address / KIB)
            .ok()
            .filter(|kib| *kib != IS_EXTENDED)
    };
    let structure = Structure::new(19);
    let partition_width = 1;
    match (short(range.base), short(last)) {
        (Some(first_kib), Some(last_kib)) => structure
            .double(first_kib)
            .double(last_kib)
            .word(array)
            .byte(partition_width)
            .bytes(&[0; 16]),
        _ => structure
            .double(IS_EXTENDED)
            .double(IS_EXTENDED)
            .word(array)
            .byte(partition_width)
            .quad(range.base)
            .quad(last),
    }
}

/// System boot information (7.33): no errors.
pub(super) fn boot() -> Structure {
    Structure::new(32).bytes(&[0; 7])
}

/// End of the table (7.45).
pub(super) fn end() -> Structure {
    Structure::new(127)
}
