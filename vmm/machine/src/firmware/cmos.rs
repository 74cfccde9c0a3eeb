//! What firmware finds in the clock's memory: how large the machine is (QEMU, `hw/i386/pc.c`).

use vmm_memory::Layout;

use crate::legacy::ClockMemory;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const BASE_KIB: u64 = 640;
/// The most that 16 bits of KiB above 1 MiB can hold.
const MAX_EXTENDED_KIB: u64 = 65_535;
/// Unit of the sizes above 16 MiB and above 4 GiB.
const UNIT: u64 = 64 * KIB;

/// Mathematics processor and mouse port: what every PC of this kind has.
const EQUIPMENT: u8 = 0x06;

/// The memory of a machine with `layout` and so many processors at power-on.
pub(super) fn memory(layout: &Layout, processors: u32) -> ClockMemory {
    let low = layout.low_ram().bytes;
    let extended = (low.saturating_sub(MIB) / KIB).min(MAX_EXTENDED_KIB);
    let above_16_mib = low.saturating_sub(16 * MIB) / UNIT;
    let above_4_gib = layout.high_ram().bytes / UNIT;
    let mut memory = [0; 128];
    let fields: [(usize, u64, usize); 6] = [
        (0x15, BASE_KIB, 2),
        (0x17, extended, 2),
        (0x30, extended, 2),
        (0x34, above_16_mib, 2),
        (0x5b, above_4_gib, 3),
        // SeaBIOS waits until so many besides the first have come up.
        (0x5f, u64::from(processors.saturating_sub(1)), 1),
    ];
    for (at, value, bytes) in fields {
        let value = value.to_le_bytes();
        for (to, from) in memory.iter_mut().skip(at).zip(value.iter().take(bytes)) {
            *to = *from;
        }
    }
    if let Some(equipment) = memory.get_mut(0x14) {
        *equipment = EQUIPMENT;
    }
    memory
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_processors_are_where_pcs_have_them() {
        let memory = memory(&Layout::new(3 << 30, 40).unwrap(), 4);
        let word = |at: usize| u16::from_le_bytes([memory[at], memory[at + 1]]);
        assert_eq!(word(0x15), 640);
        assert_eq!(word(0x30), 65_535);
        assert_eq!(u64::from(word(0x34)) * UNIT, (2 << 30) - 16 * MIB);
        assert_eq!(u64::from(word(0x5b)) * UNIT, 1 << 30);
        assert_eq!(memory[0x5f], 3);
    }
}
