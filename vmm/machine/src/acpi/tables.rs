//! The static tables.

use acpi_tables::Aml;
use acpi_tables::facs::FACS;
use acpi_tables::rsdp::Rsdp;
use acpi_tables::sdt::Sdt;
use vmm_kvm::CpuTopology;

use super::hardware::{
    GPE0, GPE0_BYTES, PM_BASE, PM_TIMER, PM1A_CONTROL, PM1A_EVENT, RESET_PORT, RESET_VALUE, SCI_GSI,
};
use super::loader::Pointer;

pub(super) const OEM_ID: [u8; 6] = *b"KVMLET";
pub(super) const OEM_TABLE_ID: [u8; 8] = *b"KVMLET  ";
const OEM_REVISION: u32 = 1;
/// Offset of the XSDT's address in the RSDP (ACPI 6.3, 5.2.5.3).
pub(super) const RSDP_XSDT: usize = 24;
/// Checksums of the RSDP: where, and of how many bytes.
pub(super) const RSDP_CHECKSUMS: [(usize, usize); 2] = [(8, 20), (32, 36)];
const HEADER_BYTES: u32 = 36;

pub(crate) const LAPIC_ADDRESS: u32 = 0xfee0_0000;
pub(crate) const IOAPIC_ADDRESS: u32 = 0xfec0_0000;

/// An empty table; `extra` bytes follow its header.
pub(super) fn table(signature: [u8; 4], extra: u32, revision: u8) -> Sdt {
    Sdt::new(
        signature,
        HEADER_BYTES + extra,
        revision,
        OEM_ID,
        OEM_TABLE_ID,
        OEM_REVISION,
    )
}

pub(super) fn rsdp() -> Vec<u8> {
    to_bytes(&Rsdp::new(OEM_ID, 0))
}

pub(super) fn facs() -> Vec<u8> {
    to_bytes(&FACS::new())
}

fn to_bytes(table: &dyn Aml) -> Vec<u8> {
    let mut bytes = Vec::new();
    table.to_aml_bytes(&mut bytes);
    bytes
}

/// The table of all tables, and its pointers.
pub(super) fn xsdt(entries: &[usize]) -> (Vec<u8>, Vec<Pointer>) {
    let mut table = table(*b"XSDT", 0, 1);
    let mut pointers = Vec::with_capacity(entries.len());
    for entry in entries {
        pointers.push(Pointer {
            at: table.len(),
            bytes: 8,
            to: *entry,
        });
        table.append_slice(&[0; 8]);
    }
    (finish(table), pointers)
}

/// Pointers of the FADT. Those of 4 bytes are for guests that look at nothing else.
pub(super) fn fadt_pointers(facs: usize, dsdt: usize) -> [Pointer; 4] {
    let pointers = [(36, 4, facs), (40, 4, dsdt), (132, 8, facs), (140, 8, dsdt)];
    pointers.map(|(at, bytes, to)| Pointer { at, bytes, to })
}

/// What Windows need not work around (Windows ACPI Emulated Devices Table 1.0): one read of the power
/// management timer is enough.
pub(super) fn waet() -> Vec<u8> {
    const PM_TIMER_GOOD: u32 = 1 << 1;
    let mut table = table(*b"WAET", 4, 1);
    table.write_u32(36, PM_TIMER_GOOD);
    finish(table)
}

/// Fixed ACPI description table (ACPI 6.3, 5.2.9) of hardware at `power`; offsets are those of table
/// 5-34.
pub(super) fn fadt(power: u16) -> Vec<u8> {
    const LENGTH: u32 = 276;
    /// WBINVD, C1 works, 32-bit timer, no sleep button, RTC not a fixed wake source, reset register.
    const FLAGS: u32 = 1 | 1 << 2 | 1 << 5 | 1 << 6 | 1 << 8 | 1 << 10;
    /// Legacy devices are there, VGA is not, ASPM must not be used.
    const BOOT_ARCHITECTURE: u16 = 1 | 1 << 2 | 1 << 4;
    let moved = |port: u16| port.wrapping_sub(PM_BASE).wrapping_add(power);
    let [event, control] = [PM1A_EVENT, PM1A_CONTROL].map(moved);
    let [timer, general] = [PM_TIMER, GPE0].map(moved);
    let mut table = table(*b"FACP", LENGTH - HEADER_BYTES, 6);
    table.write_bytes(46, low_half(&SCI_GSI.to_le_bytes()));
    table.write_u32(56, u32::from(event));
    table.write_u32(64, u32::from(control));
    table.write_u32(76, u32::from(timer));
    table.write_u32(80, u32::from(general));
    table.write_bytes(88, &[4, 2, 0, 4, GPE0_BYTES]);
    // No C2 and C3.
    table.write_u16(96, 101);
    table.write_u16(98, 1001);
    // CMOS index of the century.
    table.write_u8(108, 0x32);
    table.write_u16(109, BOOT_ARCHITECTURE);
    table.write_u32(112, FLAGS);
    table.write_bytes(116, &port_address(RESET_PORT, 8));
    table.write_u8(128, RESET_VALUE);
    table.write_u8(131, 3);
    table.write_bytes(148, &port_address(event, 32));
    table.write_bytes(172, &port_address(control, 16));
    table.write_bytes(208, &port_address(timer, 32));
    table.write_bytes(220, &port_address(general, GPE0_BYTES * 8));
    finish(table)
}

/// Generic address structure of an I/O port (ACPI 6.3, 5.2.3.2).
fn port_address(port: u16, bits: u8) -> [u8; 12] {
    const SYSTEM_IO: u8 = 1;
    let access = match bits {
        8 => 1,
        16 => 2,
        _ => 3,
    };
    let [low, high] = port.to_le_bytes();
    [SYSTEM_IO, bits, 0, access, low, high, 0, 0, 0, 0, 0, 0]
}

fn low_half(bytes: &[u8; 4]) -> &[u8] {
    bytes.split_at(2).0
}

/// Multiple APIC description table (ACPI 6.3, 5.2.12).
pub(super) fn madt(topology: CpuTopology) -> Vec<u8> {
    const DUAL_PIC: u32 = 1;
    const ENABLED: u32 = 1;
    /// Not there yet, but may come (ACPI 6.3, table 5-47).
    const ONLINE_CAPABLE: u32 = 2;
    /// Active high, level triggered.
    const SCI_FLAGS: u16 = 0xd;
    let mut table = table(*b"APIC", 8, 5);
    table.write_u32(36, LAPIC_ADDRESS);
    table.write_u32(40, DUAL_PIC);
    for index in 0..topology.max_count() {
        let flags = if index < topology.count() {
            ENABLED
        } else {
            ONLINE_CAPABLE
        };
        append_processor(&mut table, index, topology.apic_id(index), flags);
    }
    // One IOAPIC, with an id of its own kind, serving GSIs from 0.
    table.append_slice(&[1, 12, 0, 0]);
    table.append_slice(&IOAPIC_ADDRESS.to_le_bytes());
    table.append_slice(&0u32.to_le_bytes());
    let [sci, ..] = SCI_GSI.to_le_bytes();
    table.append_slice(&[2, 10, 0, sci]);
    table.append_slice(&SCI_GSI.to_le_bytes());
    table.append_slice(&SCI_FLAGS.to_le_bytes());
    // NMI at LINT1 of all processors, as set at power-on.
    table.append_slice(&[4, 6, 0xff, 0, 0, 1]);
    if topology.needs_x2apic() {
        table.append_slice(&[10, 12, 0, 0, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0]);
    }
    finish(table)
}

/// A local APIC, or a local x2APIC when the id needs more than 8 bits (ACPI 6.3, 5.2.12.2 and
/// 5.2.12.12). Ids are no smaller than indexes, which are the processors' names.
fn append_processor(table: &mut Sdt, index: u32, apic_id: u32, flags: u32) {
    match (u8::try_from(index), u8::try_from(apic_id)) {
        (Ok(uid), Ok(apic_id)) if apic_id < 255 => {
            table.append_slice(&[0, 8, uid, apic_id]);
            table.append_slice(&flags.to_le_bytes());
        }
        _ => {
            table.append_slice(&[9, 16, 0, 0]);
            table.append_slice(&apic_id.to_le_bytes());
            table.append_slice(&flags.to_le_bytes());
            table.append_slice(&index.to_le_bytes());
        }
    }
}

/// Memory-mapped configuration space at `base` (PCI Firmware 3.2, 4.1.2).
///
/// It ends with the last bus that the machine can ever have: Linux looks for a root at each device of
/// every bus up to it that no bridge leads to, which are two exits each.
pub(super) fn mcfg(base: u64, last_bus: u8) -> Vec<u8> {
    let mut table = table(*b"MCFG", 8, 1);
    table.append_slice(&base.to_le_bytes());
    table.append_slice(&[0, 0, 0, last_bus, 0, 0, 0, 0]);
    finish(table)
}

pub(super) fn finish(mut table: Sdt) -> Vec<u8> {
    table.update_checksum();
    table.as_slice().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_sums_to_zero(table: &[u8]) {
        assert_eq!(
            table.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)),
            0
        );
        let length = u32::from_le_bytes([table[4], table[5], table[6], table[7]]);
        assert_eq!(length as usize, table.len());
    }

    #[test]
    fn processors_that_may_come_are_listed_and_large_ids_are_whole() {
        let topology = CpuTopology::new(257, 1, 1).unwrap();
        let madt = madt(topology.with_boot_sockets(2).unwrap());
        assert_sums_to_zero(&madt);
        let entry = |at: usize| &madt[44 + at..];
        assert_eq!(entry(8)[..8], [0, 8, 1, 1, 1, 0, 0, 0]);
        assert_eq!(entry(16)[..8], [0, 8, 2, 2, 2, 0, 0, 0]);
        assert_eq!(entry(254 * 8)[..8], [0, 8, 254, 254, 2, 0, 0, 0]);
        let x2apic = [9, 16, 0, 0, 255, 0, 0, 0, 2, 0, 0, 0, 255, 0, 0, 0];
        assert_eq!(entry(255 * 8)[..16], x2apic);
        let x2apic = [9, 16, 0, 0, 0, 1, 0, 0, 2, 0, 0, 0, 0, 1, 0, 0];
        assert_eq!(entry(255 * 8 + 16)[..16], x2apic);
    }

    #[test]
    fn every_table_has_its_length_and_checksum() {
        assert_sums_to_zero(&fadt(0x600));
        assert_sums_to_zero(&waet());
        assert_sums_to_zero(&madt(CpuTopology::new(2, 2, 2).unwrap()));
        assert_sums_to_zero(&mcfg(0xb000_0000, 7));
        assert_sums_to_zero(&xsdt(&[1, 2, 3]).0);
        assert_eq!(rsdp().len(), 36);
    }
}
