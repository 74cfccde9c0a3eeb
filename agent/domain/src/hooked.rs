//! What hooks see of a machine, and what they may change of it.

mod cloud_init;

pub use cloud_init::{cloud_init_volumes, with_cloud_init};
use proto_machine::smbios::{
    BaseBoardInfo, ChassisInfo, MAX_OEM_STRINGS, MAX_SMBIOS_STRING_BYTES, SmbiosConfig, SystemInfo,
};
use proto_node::hooks::{
    Disk, Interface, Kernel, Machine, Smbios, SmbiosBaseBoard, SmbiosChassis, SmbiosSystem,
};

use crate::admit::{MAX_CMDLINE_BYTES, MAX_SERIAL_BYTES};
use crate::error::{FieldError, Rule};
use crate::vmi::{Boot, Vmi};

/// What hooks see of a machine.
#[must_use]
pub fn describe(vmi: &Vmi) -> Machine {
    let kernel = match &vmi.boot {
        Boot::Kernel(kernel) => Some(Kernel {
            command_line: kernel.cmdline.clone(),
        }),
        Boot::Firmware(_) => None,
    };
    Machine {
        vcpus: vmi.cpus.count(),
        memory_bytes: vmi.memory_bytes,
        kernel,
        smbios: Some(smbios(vmi)),
        disks: vmi
            .disks
            .iter()
            .map(|disk| Disk {
                name: disk.name.to_string(),
                read_only: disk.read_only,
                serial: disk.serial.clone(),
            })
            .collect(),
        interfaces: vmi
            .interfaces
            .iter()
            .map(|interface| Interface {
                name: interface.name.to_string(),
                network: interface.attachment.network().to_owned(),
                mac_address: interface.mac.to_string(),
            })
            .collect(),
    }
}

fn smbios(vmi: &Vmi) -> Smbios {
    let identity = &vmi.identity;
    let system = &identity.system;
    let board = &identity.base_board;
    let chassis = &identity.chassis;
    Smbios {
        system: Some(SmbiosSystem {
            uuid: uuid(system.uuid),
            manufacturer: system.manufacturer.clone(),
            product: system.product.clone(),
            version: system.version.clone(),
            serial: system.serial.clone(),
            sku: system.sku.clone(),
            family: system.family.clone(),
        }),
        base_board: Some(SmbiosBaseBoard {
            manufacturer: board.manufacturer.clone(),
            product: board.product.clone(),
            version: board.version.clone(),
            serial: board.serial.clone(),
            asset: board.asset.clone(),
            location: board.location.clone(),
        }),
        chassis: Some(SmbiosChassis {
            manufacturer: chassis.manufacturer.clone(),
            version: chassis.version.clone(),
            serial: chassis.serial.clone(),
            asset: chassis.asset.clone(),
            sku: chassis.sku.clone(),
        }),
        oem_strings: identity.oem_strings.clone(),
    }
}

/// As it is written: 8-4-4-4-12 hexadecimal digits.
fn uuid(bytes: [u8; 16]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32];
    parts
        .map(|part| digits.get(part).unwrap_or_default().to_owned())
        .join("-")
}

/// The VMI with what a hook changed of its machine.
///
/// # Errors
/// Everything that a hook may not change and everything that is no legal value, by its path in the machine.
pub fn with_machine(vmi: &Vmi, machine: Machine) -> Result<Vmi, Vec<FieldError>> {
    let mut changed = vmi.clone();
    take(&mut changed, &machine);
    let mut errors = illegal(&changed);
    // Whatever was not taken over is still as it was.
    let offered = normal(machine);
    let taken = normal(describe(&changed));
    for (path, differs) in differences(&offered, &taken) {
        if differs {
            let error = FieldError::new(path, Rule::Forbidden, "a hook may not change this");
            errors.push(error);
        }
    }
    if errors.is_empty() {
        Ok(changed)
    } else {
        Err(errors)
    }
}

/// Messages that say nothing are as good as absent ones.
fn normal(mut machine: Machine) -> Machine {
    let smbios = machine.smbios.get_or_insert_default();
    smbios.system.get_or_insert_default();
    smbios.base_board.get_or_insert_default();
    smbios.chassis.get_or_insert_default();
    machine
}

/// Takes over what a hook may change.
fn take(vmi: &mut Vmi, machine: &Machine) {
    if let (Boot::Kernel(boot), Some(kernel)) = (&mut vmi.boot, &machine.kernel) {
        boot.cmdline.clone_from(&kernel.command_line);
    }
    let smbios = machine.smbios.clone().unwrap_or_default();
    let system = smbios.system.unwrap_or_default();
    let board = smbios.base_board.unwrap_or_default();
    let chassis = smbios.chassis.unwrap_or_default();
    vmi.identity = SmbiosConfig {
        system: SystemInfo {
            manufacturer: system.manufacturer,
            product: system.product,
            version: system.version,
            serial: system.serial,
            // No hook may change it.
            uuid: vmi.identity.system.uuid,
            sku: system.sku,
            family: system.family,
        },
        base_board: BaseBoardInfo {
            manufacturer: board.manufacturer,
            product: board.product,
            version: board.version,
            serial: board.serial,
            asset: board.asset,
            location: board.location,
        },
        chassis: ChassisInfo {
            manufacturer: chassis.manufacturer,
            version: chassis.version,
            serial: chassis.serial,
            asset: chassis.asset,
            sku: chassis.sku,
        },
        oem_strings: smbios.oem_strings,
    };
    for (disk, offered) in vmi.disks.iter_mut().zip(&machine.disks) {
        disk.serial.clone_from(&offered.serial);
    }
}

/// Where two machines differ, top down.
fn differences(one: &Machine, other: &Machine) -> [(&'static str, bool); 6] {
    [
        ("machine.vcpus", one.vcpus != other.vcpus),
        (
            "machine.memoryBytes",
            one.memory_bytes != other.memory_bytes,
        ),
        ("machine.kernel", one.kernel != other.kernel),
        ("machine.smbios", one.smbios != other.smbios),
        ("machine.disks", one.disks != other.disks),
        ("machine.interfaces", one.interfaces != other.interfaces),
    ]
}

/// What the VMM would not take.
fn illegal(vmi: &Vmi) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut judge = |path: String, text: &str, most: usize| {
        if text.len() > most {
            let message = format!("is {} bytes long: at most {most} are allowed", text.len());
            errors.push(FieldError::new(path, Rule::Invalid, message).value(text));
        } else if text.chars().any(char::is_control) {
            let message = "must be without control characters";
            errors.push(FieldError::new(path, Rule::Invalid, message).value(text));
        }
    };
    if let Boot::Kernel(kernel) = &vmi.boot {
        let path = String::from("machine.kernel.commandLine");
        judge(path, &kernel.cmdline, MAX_CMDLINE_BYTES);
    }
    for (field, text) in smbios_texts(vmi) {
        judge(
            format!("machine.smbios.{field}"),
            text,
            MAX_SMBIOS_STRING_BYTES,
        );
    }
    let strings = &vmi.identity.oem_strings;
    for (index, text) in strings.iter().enumerate() {
        judge(
            format!("machine.smbios.oemStrings[{index}]"),
            text,
            MAX_SMBIOS_STRING_BYTES,
        );
    }
    let serial = |index| format!("machine.disks[{index}].serial");
    for (index, disk) in vmi.disks.iter().enumerate() {
        judge(serial(index), &disk.serial, MAX_SERIAL_BYTES);
    }
    for (index, disk) in vmi.disks.iter().enumerate() {
        if !disk.serial.is_ascii() {
            let message = "must be printable ASCII";
            let error = FieldError::new(serial(index), Rule::Invalid, message);
            errors.push(error.value(&disk.serial));
        }
    }
    if strings.len() > MAX_OEM_STRINGS || strings.iter().any(String::is_empty) {
        let message = format!("must be at most {MAX_OEM_STRINGS} texts, none empty");
        errors.push(FieldError::new(
            "machine.smbios.oemStrings",
            Rule::Invalid,
            message,
        ));
    }
    errors
}

/// Texts of SMBIOS by their field.
fn smbios_texts(vmi: &Vmi) -> [(&'static str, &String); 17] {
    let identity = &vmi.identity;
    let (system, board, chassis) = (&identity.system, &identity.base_board, &identity.chassis);
    [
        ("system.manufacturer", &system.manufacturer),
        ("system.product", &system.product),
        ("system.version", &system.version),
        ("system.serial", &system.serial),
        ("system.sku", &system.sku),
        ("system.family", &system.family),
        ("baseBoard.manufacturer", &board.manufacturer),
        ("baseBoard.product", &board.product),
        ("baseBoard.version", &board.version),
        ("baseBoard.serial", &board.serial),
        ("baseBoard.asset", &board.asset),
        ("baseBoard.location", &board.location),
        ("chassis.manufacturer", &chassis.manufacturer),
        ("chassis.version", &chassis.version),
        ("chassis.serial", &chassis.serial),
        ("chassis.asset", &chassis.asset),
        ("chassis.sku", &chassis.sku),
    ]
}
