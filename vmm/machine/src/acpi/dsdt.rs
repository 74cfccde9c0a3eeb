//! The DSDT: what needs names.

use acpi_tables::Aml;
use acpi_tables::aml::{
    AddressSpace, AddressSpaceCacheable, Device, EISAName, IO, Interrupt, Memory32Fixed, Name,
    Package, ResourceTemplate, Scope,
};
use vmm_memory::{ECAM_BYTES, Window};

use super::described::Described;
use super::encoded::Encoded;
use super::hardware::{COM1_GSI, COM1_PORT, SLEEP_TYPE_S5};
use super::named::append_named;
use super::osc::osc;
use super::paravirt;
use super::tables::{finish, table};
use crate::fixed_devices::FixedDevices;

/// Power-off, the PCI host bridge with its windows, configuration space, COM1, and what else
/// `machine` has.
pub(super) fn dsdt(machine: &Described<'_>) -> Vec<u8> {
    let FixedDevices { isa_pvpanic } = machine.fixed;
    let mut body = Vec::new();
    append(&mut body, &power_off());
    let system_bus = Scope::raw("_SB_".into(), {
        let mut devices = Vec::new();
        append_host_bridge(&mut devices, machine);
        append_config_space(&mut devices, machine.addresses.ecam);
        append_serial(&mut devices);
        if let Some(address) = machine.vm_gen_id {
            paravirt::append_generation_id(&mut devices, address);
        }
        if isa_pvpanic {
            paravirt::append_panic_port(&mut devices);
        }
        devices
    });
    body.extend(system_bus);
    if machine.vm_gen_id.is_some() {
        paravirt::append_generation_event(&mut body);
    }
    let mut dsdt = table(*b"DSDT", 0, 2);
    dsdt.append_slice(&body);
    finish(dsdt)
}

fn append(body: &mut Vec<u8>, object: &dyn Aml) {
    object.to_aml_bytes(body);
}

fn power_off() -> Name {
    let zero = 0u8;
    Name::new(
        "_S5_".into(),
        &Package::new(vec![&SLEEP_TYPE_S5, &zero, &zero, &zero]),
    )
}

fn append_host_bridge(body: &mut Vec<u8>, machine: &Described<'_>) {
    let addresses = &machine.addresses;
    let buses = AddressSpace::new_bus_number(0u16, u16::from(machine.pci.last_bus));
    let config_ports = IO::new(0xcf8, 0xcf8, 1, 8);
    let low_ports = AddressSpace::new_io(0u16, 0xcf7u16, None);
    let high_ports = AddressSpace::new_io(0xd00u16, 0xffffu16, None);
    let small = window32(addresses.small);
    let large = window64(addresses.large);
    let mut resources: Vec<&dyn Aml> = vec![&buses, &config_ports, &low_ports, &high_ports];
    resources.extend(small.as_ref().map(|window| window as &dyn Aml));
    resources.extend(large.as_ref().map(|window| window as &dyn Aml));
    let mut named = Vec::new();
    append_named(&mut named, &machine.pci.named);
    append(
        body,
        &Device::new(
            "PCI0".into(),
            vec![
                &Name::new("_HID".into(), &EISAName::new("PNP0A08")),
                &Name::new("_CID".into(), &EISAName::new("PNP0A03")),
                &Name::new("_UID".into(), &0u8),
                &Name::new("_SEG".into(), &0u8),
                &Name::new("_BBN".into(), &0u8),
                &Name::new("_CRS".into(), &ResourceTemplate::new(resources)),
                &Encoded(osc()),
                &Encoded(named),
            ],
        ),
    );
}

fn window32(window: Window) -> Option<AddressSpace<u32>> {
    let first = u32::try_from(window.base).ok()?;
    let last = u32::try_from(window.end().checked_sub(1)?).ok()?;
    Some(AddressSpace::new_memory(
        AddressSpaceCacheable::NotCacheable,
        true,
        first,
        last,
        None,
    ))
}

fn window64(window: Window) -> Option<AddressSpace<u64>> {
    (window.bytes > 0).then(|| {
        AddressSpace::new_memory(
            AddressSpaceCacheable::NotCacheable,
            true,
            window.base,
            window.end() - 1,
            None,
        )
    })
}

/// Linux uses the memory-mapped configuration space only when a device claims it.
fn append_config_space(body: &mut Vec<u8>, base: u64) {
    let (Ok(base), Ok(bytes)) = (u32::try_from(base), u32::try_from(ECAM_BYTES)) else {
        return;
    };
    append(
        body,
        &Device::new(
            "MBRD".into(),
            vec![
                &Name::new("_HID".into(), &EISAName::new("PNP0C02")),
                &Name::new("_UID".into(), &0u8),
                &Name::new(
                    "_CRS".into(),
                    &ResourceTemplate::new(vec![&Memory32Fixed::new(true, base, bytes)]),
                ),
            ],
        ),
    );
}

fn append_serial(body: &mut Vec<u8>) {
    append(
        body,
        &Device::new(
            "COM1".into(),
            vec![
                &Name::new("_HID".into(), &EISAName::new("PNP0501")),
                &Name::new("_UID".into(), &0u8),
                &Name::new("_DDN".into(), &"COM1"),
                &Name::new(
                    "_CRS".into(),
                    &ResourceTemplate::new(vec![
                        &IO::new(COM1_PORT, COM1_PORT, 1, 8),
                        &Interrupt::new(true, true, false, false, COM1_GSI),
                    ]),
                ),
            ],
        ),
    );
}
