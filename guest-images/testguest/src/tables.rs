//! ACPI tables as bytes: checksums, and the fields this guest needs (ACPI 6.5, chapter 5).

use crate::bytes::{u16_at, u32_at, u64_at};

/// Bytes of the header that every system description table begins with.
pub const HEADER_BYTES: usize = 36;

/// Where the root table is, from an RSDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootTable {
    /// Entries of 64 bits.
    Xsdt(u64),
    /// Entries of 32 bits.
    Rsdt(u64),
}

/// The registers that a FADT describes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fadt {
    /// Address of the DSDT.
    pub dsdt: u64,
    /// I/O port of the PM1a event registers: status, then enable; 0 when there are none.
    pub pm1a_event: u16,
    /// I/O port of the PM1a control register; 0 when there is none.
    pub pm1a_control: u16,
    /// I/O port and length of the general purpose events: status, then enable; zeros when there are none.
    pub gpe0: (u16, u8),
    /// I/O port of the power management timer, 3.579545 MHz; 0 when there is none.
    pub pm_timer: u16,
    /// The timer counts 32 bits instead of 24.
    pub pm_timer_32_bits: bool,
    /// I/O port that switches ACPI mode on; 0 when it is always on.
    pub smi_command: u16,
    /// What is written there.
    pub acpi_enable: u8,
    /// I/O port and value of the reset register, where it is in I/O space.
    pub reset: Option<(u16, u8)>,
}

/// Whether the bytes add up to 0, as all ACPI structures do.
pub fn checksum_is_right(bytes: &[u8]) -> bool {
    bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)) == 0
}

/// Reads an RSDP (5.2.5.3); `None` when signature or checksum is wrong.
pub fn root_table(rsdp: &[u8]) -> Option<RootTable> {
    if rsdp.get(..8)? != b"RSD PTR " || !checksum_is_right(rsdp.get(..20)?) {
        return None;
    }
    let revision = *rsdp.get(15)?;
    let xsdt = if revision >= 2 && checksum_is_right(rsdp.get(..36)?) {
        u64_at(rsdp, 24)?
    } else {
        0
    };
    match (xsdt, u32_at(rsdp, 16)?) {
        (0, 0) => None,
        (0, rsdt) => Some(RootTable::Rsdt(u64::from(rsdt))),
        (xsdt, _) => Some(RootTable::Xsdt(xsdt)),
    }
}

/// The length field of a table's header.
pub fn length(header: &[u8]) -> Option<usize> {
    usize::try_from(u32_at(header, 4)?).ok()
}

/// Reads a FADT (5.2.9); extended fields win over the old ones.
pub fn fadt(table: &[u8]) -> Option<Fadt> {
    let short = |offset| {
        u32_at(table, offset)
            .and_then(|port| u16::try_from(port).ok())
            .unwrap_or(0)
    };
    let port = |old, extended| io_port(table, extended).unwrap_or(short(old));
    let flags = u32_at(table, 112)?;
    let dsdt = match u64_at(table, 140) {
        Some(0) | None => u64::from(u32_at(table, 40)?),
        Some(extended) => extended,
    };
    let reset_supported = flags & 1 << 10 != 0;
    Some(Fadt {
        dsdt,
        pm1a_event: port(56, 148),
        pm1a_control: port(64, 172),
        gpe0: (port(80, 220), *table.get(92)?),
        pm_timer: port(76, 208),
        pm_timer_32_bits: flags & 1 << 8 != 0,
        smi_command: short(48),
        acpi_enable: *table.get(52)?,
        reset: io_port(table, 116)
            .filter(|_| reset_supported)
            .zip(table.get(128).copied()),
    })
}

/// The I/O port of a generic address structure (5.2.3.2), if it names one.
fn io_port(table: &[u8], offset: usize) -> Option<u16> {
    const SYSTEM_IO: u8 = 1;
    let address = u64_at(table, offset.checked_add(4)?)?;
    if *table.get(offset)? != SYSTEM_IO || address == 0 {
        return None;
    }
    u16::try_from(address).ok()
}

/// One window of memory-mapped configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EcamWindow {
    /// Guest physical address of bus 0's space, even where the first bus is another.
    pub base: u64,
    /// First bus decoded.
    pub first_bus: u8,
    /// Last bus decoded.
    pub last_bus: u8,
}

/// The window of segment 0 in an MCFG (PCI Firmware Specification 3.3, 4.1.2).
pub fn ecam_window(mcfg: &[u8]) -> Option<EcamWindow> {
    mcfg.get(HEADER_BYTES + 8..)?
        .chunks_exact(16)
        .find_map(|entry| {
            let window = EcamWindow {
                base: u64_at(entry, 0)?,
                first_bus: entry[10],
                last_bus: entry[11],
            };
            (u16_at(entry, 8)? == 0 && window.first_bus <= window.last_bus).then_some(window)
        })
}

/// The APIC ids of the usable CPUs that an MADT lists (5.2.12), in its order: the one that starts is the first.
pub fn cpu_ids(madt: &[u8]) -> impl Iterator<Item = u32> {
    const LOCAL_APIC: u8 = 0;
    const LOCAL_X2APIC: u8 = 9;
    const ENABLED: u32 = 1;
    let mut rest = madt.get(HEADER_BYTES + 8..).unwrap_or(&[]);
    core::iter::from_fn(move || {
        let length = usize::from(*rest.get(1)?);
        let entry = rest.get(..length).filter(|entry| entry.len() >= 2)?;
        rest = &rest[length..];
        Some(entry)
    })
    .filter_map(|entry| {
        let (id, flags) = match entry[0] {
            LOCAL_APIC => (entry.get(3).copied().map(u32::from), u32_at(entry, 4)),
            LOCAL_X2APIC => (u32_at(entry, 4), u32_at(entry, 8)),
            _ => (None, None),
        };
        id.filter(|_| flags.is_some_and(|flags| flags & ENABLED != 0))
    })
}

/// The value that puts SLP_TYPa to S5: the first element of `\_S5_` in a DSDT's AML. Only the form
/// that tables have in practice is understood: a name, a package, a small integer.
pub fn s5_sleep_type(aml: &[u8]) -> Option<u8> {
    const PACKAGE: u8 = 0x12;
    const ZERO: u8 = 0x00;
    const ONE: u8 = 0x01;
    const BYTE_PREFIX: u8 = 0x0a;
    let name = aml.windows(4).position(|window| window == b"_S5_")?;
    let rest = aml.get(name + 4..)?;
    let (&PACKAGE, rest) = rest.split_first()? else {
        return None;
    };
    // PkgLength: the top two bits of its first byte tell how many bytes follow (20.2.4).
    let extra = usize::from(rest.first()? >> 6);
    let elements = rest.get(1 + extra + 1..)?;
    match *elements {
        [BYTE_PREFIX, value, ..] => Some(value),
        [value @ (ZERO | ONE), ..] => Some(value),
        _ => None,
    }
}

/// Where the generation id is: the package `ADDR` of the device `VM_Gen_Counter` in a DSDT's AML, low
/// half first. Only the form that tables have in practice is understood: a name, a package, two
/// integers.
pub fn generation_id(aml: &[u8]) -> Option<u64> {
    const PACKAGE: u8 = 0x12;
    const COMPATIBLE: &[u8] = b"VM_Gen_Counter";
    let device = aml
        .windows(COMPATIBLE.len())
        .position(|window| window == COMPATIBLE)?;
    let rest = aml.get(device..)?;
    let name = rest.windows(4).position(|window| window == b"ADDR")?;
    let (&PACKAGE, rest) = rest.get(name + 4..)?.split_first()? else {
        return None;
    };
    let extra = usize::from(rest.first()? >> 6);
    let elements = rest.get(1 + extra + 1..)?;
    let (low, elements) = integer(elements)?;
    let (high, _) = integer(elements)?;
    Some(high << 32 | low)
}

/// The integer that AML begins with (20.2.3), and what follows.
fn integer(aml: &[u8]) -> Option<(u64, &[u8])> {
    let (&prefix, rest) = aml.split_first()?;
    let bytes = match prefix {
        0 | 1 => return Some((prefix.into(), rest)),
        0x0a => 1,
        0x0b => 2,
        0x0c => 4,
        0x0e => 8,
        _ => return None,
    };
    let mut value = [0; 8];
    value.get_mut(..bytes)?.copy_from_slice(rest.get(..bytes)?);
    Some((u64::from_le_bytes(value), rest.get(bytes..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_checksum(mut bytes: Vec<u8>, at: usize) -> Vec<u8> {
        let sum = bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
        bytes[at] = bytes[at].wrapping_sub(sum);
        bytes
    }

    #[test]
    fn an_rsdp_with_a_wrong_checksum_is_refused() {
        let mut rsdp = vec![0; 36];
        rsdp[..8].copy_from_slice(b"RSD PTR ");
        rsdp[16..20].copy_from_slice(&0xe1000u32.to_le_bytes());
        let mut rsdp = with_checksum(rsdp, 8);
        assert_eq!(root_table(&rsdp), Some(RootTable::Rsdt(0xe1000)));
        rsdp[16] ^= 1;
        assert_eq!(root_table(&rsdp), None);
    }

    #[test]
    fn an_xsdt_is_preferred() {
        let mut rsdp = vec![0; 36];
        rsdp[..8].copy_from_slice(b"RSD PTR ");
        rsdp[15] = 2;
        rsdp[16..20].copy_from_slice(&0xe1000u32.to_le_bytes());
        let mut rsdp = with_checksum(rsdp, 8);
        rsdp[24..32].copy_from_slice(&0xe2000u64.to_le_bytes());
        let rsdp = with_checksum(rsdp, 32);
        assert_eq!(root_table(&rsdp), Some(RootTable::Xsdt(0xe2000)));
    }

    #[test]
    fn the_s5_package_is_read_in_both_integer_forms() {
        let byte_form = b"\x08_S5_\x12\x06\x04\x0a\x05\x0a\x05\x00\x00";
        let short_form = b"\x08_S5_\x12\x06\x04\x00\x00\x00\x00";
        assert_eq!(s5_sleep_type(byte_form), Some(5));
        assert_eq!(s5_sleep_type(short_form), Some(0));
        assert_eq!(s5_sleep_type(b"\x08_S5_\x12"), None);
        assert_eq!(s5_sleep_type(b"nothing here"), None);
    }

    #[test]
    fn the_generation_id_is_where_both_halves_say() {
        let mut aml = b"\x08ADDR\x00\x08_CID\x0dVM_Gen_Counter\x00\x08ADDR\x12".to_vec();
        let package = b"\x08\x02\x0c\x28\xf0\x0e\x00\x00";
        aml.extend(package);
        assert_eq!(generation_id(&aml), Some(0xe_f028));
        aml.pop();
        assert_eq!(generation_id(&aml), None);
        aml.extend(b"\x0a\x02");
        assert_eq!(generation_id(&aml), Some(0x2_000e_f028));
        assert_eq!(generation_id(package), None);
    }

    #[test]
    fn cpus_that_are_not_enabled_are_left_out() {
        let mut madt = vec![0; HEADER_BYTES + 8];
        madt.extend([0, 8, 0, 7, 1, 0, 0, 0]);
        madt.extend([0, 8, 1, 1, 0, 0, 0, 0]);
        madt.extend([1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        madt.extend([9, 16, 0, 0, 2, 1, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(cpu_ids(&madt).collect::<Vec<_>>(), [7, 0x102]);
        madt.extend([0, 0]);
        assert_eq!(cpu_ids(&madt).count(), 2);
    }

    #[test]
    fn the_ecam_window_of_segment_0_is_found() {
        let mut mcfg = vec![0; HEADER_BYTES + 8];
        for (base, segment, last) in [(0x1000_0000u64, 1u8, 3u8), (0xb000_0000, 0, 255)] {
            mcfg.extend(base.to_le_bytes());
            mcfg.extend([segment, 0, 0, last, 0, 0, 0, 0]);
        }
        let window = EcamWindow {
            base: 0xb000_0000,
            first_bus: 0,
            last_bus: 255,
        };
        assert_eq!(ecam_window(&mcfg), Some(window));
    }
}
