//! What SMBIOS tells the guest: `--smbios TABLE,NAME=VALUE,...`, once for each table.

use std::str::FromStr;

use anyhow::{Context, bail};
use proto_vmm::v1;

use crate::options::{split, unknown};

/// One table.
#[derive(Clone, Debug)]
pub enum SmbiosFlag {
    System(v1::SmbiosSystem),
    Board(v1::SmbiosBaseBoard),
    Chassis(v1::SmbiosChassis),
    Oem(Vec<String>),
}

/// All tables; `None` when there is no flag.
pub fn smbios(flags: &[SmbiosFlag]) -> Option<v1::Smbios> {
    let mut smbios = v1::Smbios::default();
    for flag in flags {
        match flag {
            SmbiosFlag::System(system) => smbios.system = Some(system.clone()),
            SmbiosFlag::Board(board) => smbios.base_board = Some(board.clone()),
            SmbiosFlag::Chassis(chassis) => smbios.chassis = Some(chassis.clone()),
            SmbiosFlag::Oem(strings) => smbios.oem_strings.extend(strings.iter().cloned()),
        }
    }
    (!flags.is_empty()).then_some(smbios)
}

impl FromStr for SmbiosFlag {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (table, options) = split(text);
        match table {
            "system" => Ok(Self::System(system(options)?)),
            "board" => Ok(Self::Board(board(options)?)),
            "chassis" => Ok(Self::Chassis(chassis(options)?)),
            "oem" => Ok(Self::Oem(
                text.split(',').skip(1).map(str::to_owned).collect(),
            )),
            _ => bail!("{table} is no table of SMBIOS that is known here"),
        }
    }
}

fn system<'a>(
    options: impl Iterator<Item = (&'a str, Option<&'a str>)>,
) -> anyhow::Result<v1::SmbiosSystem> {
    let mut written = None;
    let texts = options.filter(|(key, value)| {
        let is_text = *key != "uuid";
        if !is_text {
            written = Some(value.unwrap_or_default());
        }
        is_text
    });
    let mut table = texts_of(texts, |table: &mut v1::SmbiosSystem, key| match key {
        "manufacturer" => Some(&mut table.manufacturer),
        "product" => Some(&mut table.product),
        "version" => Some(&mut table.version),
        "serial" => Some(&mut table.serial),
        "sku" => Some(&mut table.sku),
        "family" => Some(&mut table.family),
        _ => None,
    })?;
    if let Some(written) = written {
        table.uuid = uuid(written)?;
    }
    Ok(table)
}

fn board<'a>(
    options: impl Iterator<Item = (&'a str, Option<&'a str>)>,
) -> anyhow::Result<v1::SmbiosBaseBoard> {
    texts_of(options, |table: &mut v1::SmbiosBaseBoard, key| match key {
        "manufacturer" => Some(&mut table.manufacturer),
        "product" => Some(&mut table.product),
        "version" => Some(&mut table.version),
        "serial" => Some(&mut table.serial),
        "asset" => Some(&mut table.asset),
        "location" => Some(&mut table.location),
        _ => None,
    })
}

fn chassis<'a>(
    options: impl Iterator<Item = (&'a str, Option<&'a str>)>,
) -> anyhow::Result<v1::SmbiosChassis> {
    texts_of(options, |table: &mut v1::SmbiosChassis, key| match key {
        "manufacturer" => Some(&mut table.manufacturer),
        "version" => Some(&mut table.version),
        "serial" => Some(&mut table.serial),
        "asset" => Some(&mut table.asset),
        "sku" => Some(&mut table.sku),
        _ => None,
    })
}

/// A table of texts, each in the field that its key names.
fn texts_of<'a, T: Default>(
    options: impl Iterator<Item = (&'a str, Option<&'a str>)>,
    field: impl for<'t> Fn(&'t mut T, &str) -> Option<&'t mut String>,
) -> anyhow::Result<T> {
    let mut table = T::default();
    for (key, value) in options {
        match field(&mut table, key) {
            Some(field) => value.context("a value is missing")?.clone_into(field),
            None => return unknown(key, value),
        }
    }
    Ok(table)
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
