//! MultiProcessor table (Intel MultiProcessor Specification 1.4): processors and interrupts, for guests that
//! do not read ACPI's.
//!
//! Those that do look for it first, all the same: where it is missing, Linux searches 66 KiB in steps of 16
//! bytes and maps the rest of the area at each, some 3.4 million instructions of each start.

use vm_memory::{Bytes, GuestAddress, GuestMemoryError};
use vmm_kvm::CpuTopology;
use vmm_memory::GuestRam;

use crate::acpi::{IOAPIC_ADDRESS, LAPIC_ADDRESS, SCI_GSI};
use crate::boot::{MP_POINTER, MP_TABLE, MP_TABLE_BYTES};
use crate::fields::Fields;

const POINTER_BYTES: usize = 16;
const POINTER_CHECKSUM: usize = 10;
const HEADER_BYTES: usize = 44;
const HEADER_LENGTH: usize = 4;
const HEADER_CHECKSUM: usize = 7;
const HEADER_COUNT: usize = 34;
/// Version 1.4 of the specification.
const REVISION: u8 = 4;
/// Both chips' version registers: integrated ones, not the 82489DX.
const APIC_VERSION: u8 = 0x14;
const IOAPIC_VERSION: u8 = 0x11;
/// KVM's, and ACPI's name for it.
const IOAPIC_ID: u8 = 0;
const PCI_BUS: u8 = 0;
/// ISA has so many interrupts. Each comes to the IOAPIC's pin of its number, the interval timer's too, as the machine
/// wires them and ACPI says.
const ISA_IRQS: u8 = 16;
/// The second PIC's way to the first, and no device's.
const CASCADE: u8 = 2;
/// The only interrupt that is not as on ISA: a level, active when high (ACPI's).
const LEVEL_HIGH: u8 = 0xd;
/// All local APICs.
const EVERY_APIC: u8 = 0xff;
const ENABLED: u8 = 1;
const BOOT_PROCESSOR: u8 = 2;

/// Types of interrupts (table 4-12).
#[derive(Clone, Copy)]
enum Interrupt {
    Vectored = 0,
    NonMaskable = 1,
    External = 3,
}

/// Entries of the configuration table.
#[derive(Default)]
struct Entries {
    bytes: Vec<u8>,
    count: u16,
}

impl Entries {
    fn add(&mut self, parts: &[&[u8]]) {
        self.bytes.extend(parts.iter().copied().flatten());
        self.count += 1;
    }

    /// 4.3.1. Ends before the first id that no xAPIC has.
    fn add_processors(&mut self, topology: CpuTopology, id: [u8; 8]) {
        for index in 0..topology.count() {
            let Some(apic_id) = u8::try_from(topology.apic_id(index))
                .ok()
                .filter(|id| *id != EVERY_APIC)
            else {
                return;
            };
            let flags = if index == 0 {
                ENABLED | BOOT_PROCESSOR
            } else {
                ENABLED
            };
            self.add(&[&[0, apic_id, APIC_VERSION, flags], &id, &[0; 8]]);
        }
    }

    /// 4.3.2.
    fn add_bus(&mut self, id: u8, name: &[u8; 6]) {
        self.add(&[&[1, id], name]);
    }

    /// 4.3.4, of an interrupt whose polarity and trigger mode are `flags`, 0 for those of its bus.
    fn add_source(&mut self, flags: u8, bus: u8, irq: u8) {
        let kind = Interrupt::Vectored as u8;
        self.add(&[&[3, kind, flags, 0, bus, irq, IOAPIC_ID, irq]]);
    }

    /// 4.3.5.
    fn add_local(&mut self, kind: Interrupt, bus: u8, input: u8) {
        self.add(&[&[4, kind as u8, 0, 0, bus, 0, EVERY_APIC, input]]);
    }
}

/// The configuration table (4.2); `processor_id` is EAX and EDX of CPUID 1, little-endian.
fn table(topology: CpuTopology, processor_id: [u8; 8], last_bus: u8) -> Vec<u8> {
    let mut entries = Entries::default();
    entries.add_processors(topology, processor_id);
    entries.add_bus(PCI_BUS, b"PCI   ");
    // PCI buses have their own numbers here, for which ids do not follow each other (4.3.2 would have them do so);
    // those behind root ports send messages only.
    let isa = last_bus.saturating_add(1);
    entries.add_bus(isa, b"ISA   ");
    entries.add(&[
        &[2, IOAPIC_ID, IOAPIC_VERSION, ENABLED],
        &IOAPIC_ADDRESS.to_le_bytes(),
    ]);
    for irq in (0..ISA_IRQS).filter(|irq| *irq != CASCADE) {
        let is_acpi = u32::from(irq) == SCI_GSI;
        entries.add_source(if is_acpi { LEVEL_HIGH } else { 0 }, isa, irq);
    }
    entries.add_local(Interrupt::External, isa, 0);
    entries.add_local(Interrupt::NonMaskable, isa, 1);

    let mut table = vec![0; HEADER_BYTES];
    table.extend(entries.bytes);
    let length = u16::try_from(table.len()).unwrap_or(u16::MAX);
    let mut fields = Fields(&mut table);
    fields.put(0, b"PCMP");
    fields.put(HEADER_LENGTH, &length.to_le_bytes());
    fields.put(6, &[REVISION]);
    fields.put(8, b"KVMLET  kvmlet      ");
    fields.put(HEADER_COUNT, &entries.count.to_le_bytes());
    fields.put(36, &LAPIC_ADDRESS.to_le_bytes());
    fields.sum_to_zero(HEADER_CHECKSUM);
    table
}

/// The floating pointer (4.1).
fn pointer(table: u32) -> [u8; POINTER_BYTES] {
    let mut pointer = [0; POINTER_BYTES];
    let mut fields = Fields(&mut pointer);
    fields.put(0, b"_MP_");
    fields.put(4, &table.to_le_bytes());
    fields.put(8, &[1, REVISION]);
    fields.sum_to_zero(POINTER_CHECKSUM);
    pointer
}

/// Writes pointer and table.
///
/// # Errors
/// When guest memory ends below.
pub(crate) fn write(
    ram: &GuestRam,
    topology: CpuTopology,
    processor_id: [u8; 8],
    last_bus: u8,
) -> Result<(), GuestMemoryError> {
    let table = table(topology, processor_id, last_bus);
    debug_assert!(table.len() as u64 <= MP_TABLE_BYTES);
    ram.write_slice(&table, GuestAddress(u64::from(MP_TABLE)))?;
    ram.write_slice(&pointer(MP_TABLE), GuestAddress(MP_POINTER))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(bytes: &[u8]) -> u8 {
        bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte))
    }

    /// Types and bytes of all entries, as a guest walks them.
    fn entries(table: &[u8]) -> Vec<(u8, Vec<u8>)> {
        let mut rest = &table[HEADER_BYTES..];
        let mut found = Vec::new();
        while let Some(kind) = rest.first() {
            let (entry, others) = rest.split_at(if *kind == 0 { 20 } else { 8 });
            found.push((*kind, entry.to_vec()));
            rest = others;
        }
        found
    }

    #[test]
    fn a_guest_finds_processors_chips_and_interrupts() {
        let topology = CpuTopology::new(2, 2, 1)
            .unwrap()
            .with_boot_sockets(1)
            .unwrap();
        let table = table(topology, [1, 2, 3, 4, 5, 6, 7, 8], 4);
        assert_eq!(sum(&table), 0);
        assert_eq!(&table[..4], b"PCMP");
        let word = |at: usize| usize::from(u16::from_le_bytes([table[at], table[at + 1]]));
        assert_eq!(word(HEADER_LENGTH), table.len());
        let entries = entries(&table);
        assert_eq!(word(HEADER_COUNT), entries.len());
        assert!(entries.is_sorted_by_key(|(kind, _)| *kind));
        let of = |wanted: u8| {
            let of_it = entries.iter().filter(move |(kind, _)| *kind == wanted);
            of_it.map(|(_, bytes)| bytes.as_slice())
        };
        let processors: Vec<_> = of(0).collect();
        assert_eq!(processors.len(), 2);
        assert_eq!(processors[0][..8], [0, 0, 0x14, 3, 1, 2, 3, 4]);
        assert_eq!(processors[1][..4], [0, 1, 0x14, 1]);
        let buses: Vec<_> = of(1).collect();
        assert_eq!(buses, [b"\x01\x00PCI   ", b"\x01\x05ISA   "]);
        assert_eq!(of(2).count(), 1);
        // Flags, interrupt and pin.
        let pins: Vec<_> = of(3).map(|entry| (entry[2], entry[5], entry[7])).collect();
        assert_eq!(pins.len(), 15);
        assert_eq!(pins[..3], [(0, 0, 0), (0, 1, 1), (0, 3, 3)]);
        assert_eq!(pins[8], (0xd, 9, 9));
        let local: Vec<_> = of(4).map(|entry| (entry[1], entry[7])).collect();
        assert_eq!(local, [(3, 0), (1, 1)]);
    }

    #[test]
    fn the_largest_table_fits_and_has_no_broadcast_address() {
        let table = table(CpuTopology::new(4096, 1, 1).unwrap(), [0; 8], u8::MAX);
        assert!(table.len() as u64 <= MP_TABLE_BYTES, "{}", table.len());
        let processors = entries(&table).into_iter().filter(|(kind, _)| *kind == 0);
        assert_eq!(processors.count(), 255);
        assert_eq!(sum(&pointer(MP_TABLE)), 0);
        assert_eq!(pointer(MP_TABLE)[4..8], MP_TABLE.to_le_bytes());
    }
}
