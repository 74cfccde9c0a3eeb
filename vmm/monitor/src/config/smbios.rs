//! `smbios` of a machine's configuration.

use proto_machine::smbios::{
    BaseBoardInfo, ChassisInfo, MAX_OEM_STRINGS, MAX_SMBIOS_STRING_BYTES, SmbiosConfig, SystemInfo,
};
use proto_vmm::v1;

use super::error::FieldError;

/// Reads everything.
pub(super) fn smbios(wire: &v1::Smbios) -> Result<SmbiosConfig, FieldError> {
    let system = wire.system.clone().unwrap_or_default();
    let base_board = wire.base_board.clone().unwrap_or_default();
    let chassis = wire.chassis.clone().unwrap_or_default();
    let count = wire.oem_strings.len();
    if count > MAX_OEM_STRINGS {
        let rule = format!("has {count} entries, more than {MAX_OEM_STRINGS}");
        return Err(FieldError::new("smbios.oem_strings", rule));
    }
    let oem_strings = wire
        .oem_strings
        .iter()
        .enumerate()
        .map(|(index, oem)| {
            let field = format!("oem_strings[{index}]");
            if oem.is_empty() {
                return Err(FieldError::new(format!("smbios.{field}"), "is empty"));
            }
            text(&field, oem.clone())
        })
        .collect::<Result<_, _>>()?;
    Ok(SmbiosConfig {
        system: SystemInfo {
            manufacturer: text("system.manufacturer", system.manufacturer)?,
            product: text("system.product", system.product)?,
            version: text("system.version", system.version)?,
            serial: text("system.serial", system.serial)?,
            uuid: uuid(&system.uuid)?,
            sku: text("system.sku", system.sku)?,
            family: text("system.family", system.family)?,
        },
        base_board: BaseBoardInfo {
            manufacturer: text("base_board.manufacturer", base_board.manufacturer)?,
            product: text("base_board.product", base_board.product)?,
            version: text("base_board.version", base_board.version)?,
            serial: text("base_board.serial", base_board.serial)?,
            asset: text("base_board.asset", base_board.asset)?,
            location: text("base_board.location", base_board.location)?,
        },
        chassis: ChassisInfo {
            manufacturer: text("chassis.manufacturer", chassis.manufacturer)?,
            version: text("chassis.version", chassis.version)?,
            serial: text("chassis.serial", chassis.serial)?,
            asset: text("chassis.asset", chassis.asset)?,
            sku: text("chassis.sku", chassis.sku)?,
        },
        oem_strings,
    })
}

/// A string as guests may see it.
fn text(field: &str, value: String) -> Result<String, FieldError> {
    let refuse = |rule| Err(FieldError::new(format!("smbios.{field}"), rule));
    if value.len() > MAX_SMBIOS_STRING_BYTES {
        let bytes = value.len();
        return refuse(format!(
            "has {bytes} bytes, more than {MAX_SMBIOS_STRING_BYTES}"
        ));
    }
    if value.chars().any(char::is_control) {
        return refuse("has a control character".to_owned());
    }
    Ok(value)
}

/// None, or 16 bytes.
fn uuid(bytes: &[u8]) -> Result<[u8; 16], FieldError> {
    if bytes.is_empty() {
        return Ok([0; 16]);
    }
    <[u8; 16]>::try_from(bytes).map_err(|_| {
        let rule = format!("has {} bytes; a UUID has 16", bytes.len());
        FieldError::new("smbios.system.uuid", rule)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_not_specified() {
        assert_eq!(smbios(&v1::Smbios::default()), Ok(SmbiosConfig::default()));
    }

    #[test]
    fn every_wrong_field_is_named() {
        let field = |wire: &v1::Smbios| smbios(wire).unwrap_err().field;
        let system = |change: fn(&mut v1::SmbiosSystem)| {
            let mut system = v1::SmbiosSystem::default();
            change(&mut system);
            v1::Smbios {
                system: Some(system),
                ..v1::Smbios::default()
            }
        };
        let short = system(|system| system.uuid = vec![1; 15]);
        assert_eq!(field(&short), "smbios.system.uuid");
        let long = system(|system| system.serial = "x".repeat(1025));
        assert_eq!(field(&long), "smbios.system.serial");
        let lines = system(|system| system.family = "a\nb".to_owned());
        assert_eq!(field(&lines), "smbios.system.family");
        let oem = |texts: Vec<String>| v1::Smbios {
            oem_strings: texts,
            ..v1::Smbios::default()
        };
        let empty = oem(vec!["a".to_owned(), String::new()]);
        assert_eq!(field(&empty), "smbios.oem_strings[1]");
        let many = oem(vec!["a".to_owned(); 256]);
        assert_eq!(field(&many), "smbios.oem_strings");
    }
}
