//! What SMBIOS has for the guest: `--smbios TABLE,NAME=VALUE,...`, once for each table.

use std::str::FromStr;

use anyhow::{Context, bail};
use proto_machine::for_each_smbios_text;
use proto_vmm::v1;

use crate::options::{split, unknown};

/// One table, with its texts, or OEM strings.
#[derive(Clone, Debug)]
pub struct SmbiosFlag(v1::Smbios);

/// All tables; `None` when there is no flag.
pub fn smbios(flags: &[SmbiosFlag]) -> Option<v1::Smbios> {
    let mut smbios = v1::Smbios::default();
    for SmbiosFlag(one) in flags.iter().cloned() {
        smbios.system = one.system.or(smbios.system);
        smbios.base_board = one.base_board.or(smbios.base_board);
        smbios.chassis = one.chassis.or(smbios.chassis);
        smbios.oem_strings.extend(one.oem_strings);
    }
    (!flags.is_empty()).then_some(smbios)
}

impl FromStr for SmbiosFlag {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut smbios = v1::Smbios::default();
        let (table, options) = split(text);
        let table = match table {
            "oem" => {
                smbios.oem_strings = text.split(',').skip(1).map(str::to_owned).collect();
                return Ok(Self(smbios));
            }
            "board" => "base_board",
            "system" | "chassis" => table,
            _ => bail!("{table} is no table of SMBIOS that is known here"),
        };
        for (key, value) in options {
            if (table, key) == ("system", "uuid") {
                let uuid = uuid(value.unwrap_or_default())?;
                smbios.system.get_or_insert_default().uuid = uuid;
                continue;
            }
            match text_of(&mut smbios, table, key) {
                Some(text) => value.context("a value is missing")?.clone_into(text),
                None => return unknown(key, value),
            }
        }
        Ok(Self(smbios))
    }
}

/// The text of this name in a table.
fn text_of<'t>(smbios: &'t mut v1::Smbios, table: &str, name: &str) -> Option<&'t mut String> {
    macro_rules! find {
        ($table:ident, $text:ident) => {
            if (table, name) == (stringify!($table), stringify!($text)) {
                return Some(&mut smbios.$table.get_or_insert_default().$text);
            }
        };
    }
    for_each_smbios_text!(find);
    None
}

/// The bytes of a UUID in the order in which it is written.
fn uuid(text: &str) -> anyhow::Result<Vec<u8>> {
    let digits = text.replace('-', "");
    if digits.len() != 32 {
        bail!("a UUID has 32 digits");
    }
    let number = u128::from_str_radix(&digits, 16).context("the digits are hexadecimal")?;
    Ok(number.to_be_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_has_its_own_names() {
        let flags = [
            "system,serial=S1,uuid=00010203-0405-0607-0809-0a0b0c0d0e0f",
            "chassis,asset=A1",
            "oem,one,two words",
        ]
        .map(|text| text.parse::<SmbiosFlag>().unwrap());
        let tables = smbios(&flags).unwrap();
        let system = tables.system.unwrap();
        assert_eq!((system.serial.as_str(), system.uuid[1]), ("S1", 1));
        assert_eq!(tables.chassis.unwrap().asset, "A1");
        assert_eq!(tables.oem_strings, ["one", "two words"]);
        assert_eq!(tables.base_board, None);
        assert_eq!(smbios(&[]), None);
        for wrong in ["system,asset=1", "board,uuid=1", "system,uuid=1", "cpu"] {
            assert!(wrong.parse::<SmbiosFlag>().is_err(), "{wrong}");
        }
    }
}
