//! `smbios` of a machine's configuration.

use proto_machine::for_each_smbios_text;
use proto_machine::smbios::{MAX_OEM_STRINGS, SmbiosConfig, check_text};
use proto_vmm::v1;

use super::error::FieldError;

/// Reads everything.
pub(super) fn smbios(wire: &v1::Smbios) -> Result<SmbiosConfig, FieldError> {
    let count = wire.oem_strings.len();
    if count > MAX_OEM_STRINGS {
        let rule = format!("has {count} entries, more than {MAX_OEM_STRINGS}");
        return Err(FieldError::new("smbios.oem_strings", rule));
    }
    for (index, oem) in wire.oem_strings.iter().enumerate() {
        let field = format!("oem_strings[{index}]");
        if oem.is_empty() {
            return Err(FieldError::new(format!("smbios.{field}"), "is empty"));
        }
        check(&field, oem)?;
    }
    let mut config = SmbiosConfig {
        oem_strings: wire.oem_strings.clone(),
        ..SmbiosConfig::default()
    };
    macro_rules! copy {
        ($table:ident, $text:ident) => {
            if let Some(table) = &wire.$table {
                check(
                    concat!(stringify!($table), ".", stringify!($text)),
                    &table.$text,
                )?;
                config.$table.$text.clone_from(&table.$text);
            }
        };
    }
    for_each_smbios_text!(copy);
    if let Some(system) = &wire.system {
        config.system.uuid = uuid(&system.uuid)?;
    }
    Ok(config)
}

/// Refuses a text that a guest must not see.
fn check(field: &str, text: &str) -> Result<(), FieldError> {
    check_text(text)
        .map_err(|broken| FieldError::new(format!("smbios.{field}"), broken.to_string()))
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
    fn every_text_is_read() {
        let mut wire = v1::Smbios::default();
        macro_rules! fill {
            ($table:ident, $text:ident) => {
                wire.$table.get_or_insert_default().$text = stringify!($text).to_owned();
            };
        }
        for_each_smbios_text!(fill);
        // No text of the message is left out of the list.
        assert!(!format!("{wire:?}").contains("\"\""), "{wire:?}");
        let config = smbios(&wire).unwrap();
        assert_eq!(config.base_board.location, "location");
        assert!(!format!("{config:?}").contains("\"\""), "{config:?}");
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
