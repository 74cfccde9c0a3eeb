//! Boot by firmware.

use proto_vmm::v1;
use vmm_machine::{DebugLog, FirmwareConfig};

use super::error::FieldError;
use super::places::{self, MAX_DEVICES};
use crate::descriptors::{Access, Descriptors};

/// Reads everything but the files' lengths, which the machine looks at.
pub(super) fn firmware(
    wire: &v1::FirmwareBoot,
    descriptors: &mut Descriptors,
) -> Result<FirmwareConfig, FieldError> {
    let code = descriptors.take_file("firmware.code_fd", wire.code_fd, Access::Read)?;
    let variables = wire
        .variables_fd
        .map(|index| descriptors.take_file("firmware.variables_fd", index, Access::ReadWrite))
        .transpose()?;
    let debug_log = wire
        .debug_log_fd
        .map(|index| descriptors.take_file("firmware.debug_log_fd", index, Access::Write))
        .transpose()?
        .map(|file| DebugLog {
            file,
            max_bytes: wire.debug_log_max_bytes,
        });
    let count = wire.boot_order.len();
    if count > MAX_DEVICES {
        let rule = format!("has {count} entries, more than {MAX_DEVICES}");
        return Err(FieldError::new("firmware.boot_order", rule));
    }
    let mut boot_order = Vec::with_capacity(count);
    for (index, address) in wire.boot_order.iter().enumerate() {
        let field = format!("firmware.boot_order[{index}]");
        let address = places::address(&field, Some(address))?;
        if boot_order.contains(&address) {
            let rule = format!("is {address}, which is there already");
            return Err(FieldError::new(field, rule));
        }
        boot_order.push(address);
    }
    Ok(FirmwareConfig {
        code,
        variables,
        boot_order,
        serial_console: wire.serial_console,
        debug_log,
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::OwnedFd;

    use super::*;

    fn read(change: impl FnOnce(&mut v1::FirmwareBoot)) -> Result<FirmwareConfig, String> {
        let file = || OwnedFd::from(tempfile::tempfile().unwrap());
        let mut wire = v1::FirmwareBoot::default();
        change(&mut wire);
        let read_only = OwnedFd::from(File::open("/proc/self/exe").unwrap());
        let mut descriptors = Descriptors::new(vec![file(), file(), read_only]);
        firmware(&wire, &mut descriptors).map_err(|error| error.field)
    }

    #[test]
    fn firmware_may_have_variables_and_an_order() {
        let place = |device| v1::PciAddress {
            bus: 0,
            device,
            function: 0,
        };
        let config = read(|wire| {
            wire.variables_fd = Some(1);
            wire.boot_order = vec![place(3), place(2)];
        })
        .unwrap();
        assert!(config.variables.is_some());
        assert_eq!(config.boot_order.len(), 2);
        let twice = read(|wire| wire.boot_order = vec![place(3), place(3)]);
        assert_eq!(twice.err().unwrap(), "firmware.boot_order[1]");
    }

    #[test]
    fn every_wrong_descriptor_is_named() {
        let wrong = |change: fn(&mut v1::FirmwareBoot), field: &str| {
            assert_eq!(read(change).err().unwrap(), format!("firmware.{field}"));
        };
        wrong(|wire| wire.code_fd = 9, "code_fd");
        wrong(|wire| wire.variables_fd = Some(0), "variables_fd");
        wrong(|wire| wire.variables_fd = Some(2), "variables_fd");
        wrong(|wire| wire.debug_log_fd = Some(2), "debug_log_fd");
    }
}
