//! Devices that only virtual machines have: the generation id and the panic port.

use acpi_tables::Aml;
use acpi_tables::aml::{Device, IO, Method, Name, Notify, Package, Path, ResourceTemplate, Scope};

use super::hardware::{PVPANIC_PORT, VM_GEN_ID_EVENT};

/// Present, enabled, shown, working (ACPI 6.3, 6.3.7).
const STATUS_PRESENT: u8 = 0xf;
/// The device has something to tell (ACPI 6.3, 5.6.6).
const NOTIFY_CHANGED: u8 = 0x80;

/// The generation id at `address` (Microsoft, "Virtual Machine Generation ID", 2012), within the
/// scope of the system bus.
pub(super) fn append_generation_id(body: &mut Vec<u8>, address: u64) {
    let (low, high) = (address & u64::from(u32::MAX), address >> 32);
    Device::new(
        "VMGN".into(),
        vec![
            &Name::new("_HID".into(), &"QEMUVGID"),
            &Name::new("_CID".into(), &"VM_Gen_Counter"),
            &Name::new("_DDN".into(), &"VM_Gen_Counter"),
            &Name::new("_STA".into(), &STATUS_PRESENT),
            &Name::new("ADDR".into(), &Package::new(vec![&low, &high])),
        ],
    )
    .to_aml_bytes(body);
}

/// What is run when the generation id changed.
pub(super) fn append_generation_event(body: &mut Vec<u8>) {
    let device = Path::new("\\_SB_.VMGN");
    let notify = Notify::new(&device, &NOTIFY_CHANGED);
    let name = format!("_E{VM_GEN_ID_EVENT:02X}");
    let handler = Method::new(name.as_str().into(), 0, false, vec![&notify]);
    Scope::new("_GPE".into(), vec![&handler]).to_aml_bytes(body);
}

/// pvpanic at its port (QEMU, `docs/specs/pvpanic.rst`), within the scope of the system bus.
pub(super) fn append_panic_port(body: &mut Vec<u8>) {
    Device::new(
        "PEVT".into(),
        vec![
            &Name::new("_HID".into(), &"QEMU0001"),
            &Name::new("_STA".into(), &STATUS_PRESENT),
            &Name::new(
                "_CRS".into(),
                &ResourceTemplate::new(vec![&IO::new(PVPANIC_PORT, PVPANIC_PORT, 1, 1)]),
            ),
        ],
    )
    .to_aml_bytes(body);
}
