//! ACPI: from the root pointer to the tables this guest needs.

use core::sync::atomic::{AtomicU32, Ordering};

use testguest_lib::bytes::{u32_at, u64_at};
use testguest_lib::tables::{self, EcamWindow, Fadt, RootTable};

use crate::memory;

const BIOS_AREA: core::ops::Range<u64> = 0xe_0000..0x10_0000;
/// Real-mode segment of the extended BIOS data area.
const EBDA_SEGMENT: u64 = 0x40e;
const RSDP_BYTES: usize = 36;
const MAX_TABLE_BYTES: usize = 1 << 20;
/// SLP_TYP that most firmware, and every VMM without a `\_S5_`, gives S5.
const DEFAULT_S5_SLEEP_TYPE: u8 = 5;

/// What the tables say.
#[derive(Default)]
pub struct Acpi {
    /// Where the RSDP was.
    pub rsdp: u64,
    /// Tables reached from the root.
    pub tables: usize,
    /// Tables whose checksum is wrong; they are not used.
    pub bad_checksums: usize,
    /// Usable CPUs of the MADT.
    pub cpus: usize,
    /// Local APIC of the second of them.
    pub second_cpu: Option<u32>,
    /// PCI configuration space.
    pub ecam: Option<EcamWindow>,
    /// Power management registers.
    pub fadt: Option<Fadt>,
    /// Address of the generation id, where the DSDT has it.
    pub generation_id: Option<u64>,
    /// `\_S5_`, where the DSDT has it.
    pub s5_sleep_type: Option<u8>,
}

impl Acpi {
    /// SLP_TYPa for S5.
    pub fn sleep_type(&self) -> u8 {
        self.s5_sleep_type.unwrap_or(DEFAULT_S5_SLEEP_TYPE)
    }
}

/// Reads the tables; `hint` is the RSDP's address by the boot protocol. `None` without an RSDP.
pub fn read(hint: Option<u64>) -> Option<Acpi> {
    let (rsdp, root) = hint
        .and_then(|address| Some((address, root_at(address)?)))
        .or_else(scan)?;
    let mut acpi = Acpi {
        rsdp,
        ..Acpi::default()
    };
    let (address, entry_bytes) = match root {
        RootTable::Xsdt(address) => (address, 8),
        RootTable::Rsdt(address) => (address, 4),
    };
    let entries = acpi.table(address)?.get(tables::HEADER_BYTES..)?;
    for entry in entries.chunks_exact(entry_bytes) {
        let address = u64_at(entry, 0).or(u32_at(entry, 0).map(u64::from))?;
        if let Some(table) = acpi.table(address) {
            acpi.take(table);
        }
    }
    Some(acpi)
}

impl Acpi {
    fn table(&mut self, address: u64) -> Option<&'static [u8]> {
        let header = memory::boot_data(address, tables::HEADER_BYTES)?;
        let length = tables::length(header)?;
        if !(tables::HEADER_BYTES..=MAX_TABLE_BYTES).contains(&length) {
            return None;
        }
        let table = memory::boot_data(address, length)?;
        self.tables += 1;
        if !tables::checksum_is_right(table) {
            self.bad_checksums += 1;
            return None;
        }
        Some(table)
    }

    fn take(&mut self, table: &'static [u8]) {
        match &table[..4] {
            b"MCFG" => self.ecam = tables::ecam_window(table),
            b"APIC" => {
                self.cpus = tables::cpu_ids(table).count();
                self.second_cpu = tables::cpu_ids(table).nth(1);
            }
            b"FACP" => {
                self.fadt = tables::fadt(table);
                let dsdt = self.fadt.and_then(|fadt| self.table(fadt.dsdt));
                self.s5_sleep_type =
                    dsdt.and_then(|dsdt| tables::s5_sleep_type(&dsdt[tables::HEADER_BYTES..]));
                self.generation_id = dsdt.and_then(tables::generation_id);
            }
            _ => {}
        }
    }
}

/// Looks where a PC's firmware leaves the RSDP (ACPI 6.5, 5.2.5.1).
fn scan() -> Option<(u64, RootTable)> {
    let ebda = memory::boot_data(EBDA_SEGMENT, 2).map_or(0, |bytes| {
        u64::from(u16::from_le_bytes([bytes[0], bytes[1]])) << 4
    });
    let areas = [ebda..ebda + 1024, BIOS_AREA];
    areas
        .into_iter()
        .flat_map(|area| area.step_by(16))
        .find_map(|address| Some((address, root_at(address)?)))
}

fn root_at(address: u64) -> Option<RootTable> {
    tables::root_table(memory::boot_data(address, RSDP_BYTES)?)
}

/// Registers of the FADT, kept where a panic or an exception finds them: the control port, SLP_TYP.
static POWER_PORT: AtomicU32 = AtomicU32::new(0);
static SLEEP_TYPE: AtomicU32 = AtomicU32::new(0);

/// Remembers how the power goes off.
pub fn publish_power_registers(acpi: &Acpi) {
    let port = acpi.fadt.map_or(0, |fadt| fadt.pm1a_control);
    SLEEP_TYPE.store(u32::from(acpi.sleep_type()), Ordering::SeqCst);
    POWER_PORT.store(u32::from(port), Ordering::SeqCst);
}

/// PM1a_CNT and SLP_TYPa, if the tables have been read and name them.
pub fn power_registers() -> Option<(u16, u8)> {
    let port = u16::try_from(POWER_PORT.load(Ordering::SeqCst)).ok()?;
    let sleep_type = u8::try_from(SLEEP_TYPE.load(Ordering::SeqCst)).ok()?;
    (port != 0).then_some((port, sleep_type))
}
