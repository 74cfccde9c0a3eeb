//! What hooks see of a machine, and what they may change of it.

mod cloud_init;

use std::mem;

pub use cloud_init::{cloud_init_volumes, with_cloud_init};
use proto_machine::for_each_smbios_text;
use proto_machine::smbios::{MAX_OEM_STRINGS, MAX_SMBIOS_STRING_BYTES, SmbiosConfig, check_line};
use proto_node::hooks::{Disk, Interface, Kernel, Machine, Smbios};

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
        smbios: Some(smbios(&vmi.identity)),
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

fn smbios(identity: &SmbiosConfig) -> Smbios {
    let mut smbios = Smbios {
        oem_strings: identity.oem_strings.clone(),
        ..Smbios::default()
    };
    macro_rules! copy {
        ($table:ident, $text:ident) => {
            let table = smbios.$table.get_or_insert_default();
            table.$text.clone_from(&identity.$table.$text);
        };
    }
    for_each_smbios_text!(copy);
    smbios.system.get_or_insert_default().uuid = uuid(identity.system.uuid);
    smbios
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
    take_smbios(
        &mut vmi.identity,
        machine.smbios.clone().unwrap_or_default(),
    );
    for (disk, offered) in vmi.disks.iter_mut().zip(&machine.disks) {
        disk.serial.clone_from(&offered.serial);
    }
}

/// Takes over all but the UUID, which no hook may change.
fn take_smbios(identity: &mut SmbiosConfig, mut smbios: Smbios) {
    identity.oem_strings = smbios.oem_strings;
    macro_rules! take {
        ($table:ident, $text:ident) => {
            identity.$table.$text = mem::take(&mut smbios.$table.get_or_insert_default().$text);
        };
    }
    for_each_smbios_text!(take);
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
        if let Err(broken) = check_line(text, most) {
            let error = FieldError::new(path, Rule::Invalid, broken.to_string());
            errors.push(error.value(text));
        }
    };
    if let Boot::Kernel(kernel) = &vmi.boot {
        let path = String::from("machine.kernel.commandLine");
        judge(path, &kernel.cmdline, MAX_CMDLINE_BYTES);
    }
    let identity = &vmi.identity;
    macro_rules! judge_text {
        ($table:ident, $text:ident) => {
            let table = match stringify!($table) {
                "base_board" => "baseBoard",
                table => table,
            };
            let path = format!("machine.smbios.{table}.{}", stringify!($text));
            judge(path, &identity.$table.$text, MAX_SMBIOS_STRING_BYTES);
        };
    }
    for_each_smbios_text!(judge_text);
    let strings = &identity.oem_strings;
    for (index, text) in strings.iter().enumerate() {
        let path = format!("machine.smbios.oemStrings[{index}]");
        judge(path, text, MAX_SMBIOS_STRING_BYTES);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_of_smbios_is_shown_to_hooks_and_taken_back() {
        let mut identity = SmbiosConfig::default();
        macro_rules! fill {
            ($table:ident, $text:ident) => {
                identity.$table.$text = concat!("a ", stringify!($text)).to_owned();
            };
        }
        for_each_smbios_text!(fill);
        let shown = smbios(&identity);
        assert!(!format!("{shown:?}").contains("\"\""), "{shown:?}");
        let mut taken = SmbiosConfig::default();
        take_smbios(&mut taken, shown);
        assert_eq!(taken, identity);
    }
}
