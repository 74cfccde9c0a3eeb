//! The items of fw_cfg: only what SeaBIOS and OVMF read.

use vmm_devices::fw_cfg::{Content, Items};
use vmm_kvm::GuestCpu;
use vmm_memory::Layout;

use super::script::{GENERATION_ADDRESS_FILE, GENERATION_FILE, ROOT_FILE, TABLES_FILE};
use super::tables::{TableSource, generation_file};
use crate::acpi::COM1_PORT;
use crate::firmware::config::FirmwareConfig;
use crate::firmware::error::FirmwareError;
use crate::firmware::order::BootOrder;
use crate::generation_id::GenerationId;
use crate::smbios::{Processors, Smbios};
use proto_machine::smbios::SmbiosConfig;

/// Keys that have no name (QEMU, `include/standard-headers/linux/qemu_fw_cfg.h`).
const RAM_BYTES: u16 = 0x03;
const PROCESSORS: u16 = 0x05;
const BOOT_MENU: u16 = 0x0e;
const MAX_PROCESSORS: u16 = 0x0f;

/// `IA32_FEATURE_CONTROL` (Intel SDM, volume 3, 24.7): locked, VMX outside of SMX. SeaBIOS and OVMF write to
/// all processors what the file says.
const FEATURE_CONTROL: u64 = 1 | 1 << 2;

const RAM: u32 = 1;
/// Firmware that finds nothing to boot says so and stays; its own idea is to start over.
const STAY: [u8; 4] = [0xff; 4];

/// What the items say of the machine.
pub(crate) struct Machine<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) cpu: &'a GuestCpu,
    pub(crate) smbios: Option<&'a SmbiosConfig>,
    pub(crate) generation: Option<GenerationId>,
    pub(crate) order: &'a BootOrder,
}

/// All items.
pub(super) fn items(
    config: &FirmwareConfig,
    machine: &Machine<'_>,
    source: &TableSource,
) -> Result<Items, FirmwareError> {
    let mut items = Items::default();
    add_sizes(&mut items, machine)?;
    add_tables(&mut items, source)?;
    if let Some(id) = machine.generation {
        items.add_file(GENERATION_FILE, Content::Fixed(generation_file(id)))?;
        items.add_file(GENERATION_ADDRESS_FILE, Content::Written(8))?;
    }
    if let Some(config) = machine.smbios {
        add_smbios(&mut items, config, machine)?;
    }
    if let Some(order) = machine.order.file(&config.boot_order)? {
        items.add_file("bootorder", Content::Fixed(order))?;
    }
    if machine.cpu.features().has("vmx") {
        let value = FEATURE_CONTROL.to_le_bytes().to_vec();
        items.add_file("etc/msr_feature_control", Content::Fixed(value))?;
    }
    if config.serial_console {
        let port = u64::from(COM1_PORT).to_le_bytes().to_vec();
        items.add_file("etc/sercon-port", Content::Fixed(port))?;
    }
    items.add_file("etc/boot-fail-wait", Content::Fixed(STAY.to_vec()))?;
    Ok(items)
}

fn add_sizes(items: &mut Items, machine: &Machine<'_>) -> Result<(), FirmwareError> {
    let Machine { layout, cpu, .. } = machine;
    let topology = cpu.topology();
    let largest_id = topology.apic_id(topology.max_count().saturating_sub(1));
    let ram_bytes: u64 = layout.ram().map(|window| window.bytes).sum();
    let word = |value: u32| u16::try_from(value).unwrap_or(u16::MAX).to_le_bytes();
    let keys: [(u16, Vec<u8>); 4] = [
        (RAM_BYTES, ram_bytes.to_le_bytes().to_vec()),
        (PROCESSORS, word(topology.count()).to_vec()),
        (BOOT_MENU, word(0).to_vec()),
        (MAX_PROCESSORS, word(largest_id.saturating_add(1)).to_vec()),
    ];
    for (key, value) in keys {
        items.add(key, Content::Fixed(value))?;
    }
    items.add_file("etc/e820", Content::Fixed(memory_map(layout)))?;
    let plugged = layout.hot_plug();
    if plugged.bytes > 0 {
        // BARs lie above.
        let end = plugged.end().to_le_bytes().to_vec();
        items.add_file("etc/reserved-memory-end", Content::Fixed(end))?;
    }
    Ok(())
}

/// Base, length and kind of each range; firmware knows by itself what is no RAM.
fn memory_map(layout: &Layout) -> Vec<u8> {
    let mut map = Vec::new();
    for window in layout.ram() {
        map.extend(window.base.to_le_bytes());
        map.extend(window.bytes.to_le_bytes());
        map.extend(RAM.to_le_bytes());
    }
    map
}

/// Tables are made anew whenever firmware selects them, after it has chosen addresses.
fn add_tables(items: &mut Items, source: &TableSource) -> Result<(), FirmwareError> {
    let files = source.files()?;
    items.add_file(ROOT_FILE, Content::Fixed(files.root))?;
    items.add_file("etc/table-loader", Content::Fixed(files.script))?;
    let bytes = files.tables.len();
    let source = source.clone();
    // They could be made a moment ago.
    let make = Box::new(move || source.files().map_or(Vec::new(), |files| files.tables));
    items.add_file(TABLES_FILE, Content::Made { bytes, make })?;
    Ok(())
}

fn add_smbios(
    items: &mut Items,
    config: &SmbiosConfig,
    machine: &Machine<'_>,
) -> Result<(), FirmwareError> {
    let processors = Processors {
        topology: machine.cpu.topology(),
        id: machine.cpu.processor_id(),
    };
    let (anchor, tables) = Smbios::new(config, processors, machine.layout).hand_over();
    items.add_file("etc/smbios/smbios-anchor", Content::Fixed(anchor))?;
    items.add_file("etc/smbios/smbios-tables", Content::Fixed(tables))?;
    Ok(())
}
