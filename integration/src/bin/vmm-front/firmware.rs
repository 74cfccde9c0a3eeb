//! Boot by firmware.

use std::fs::OpenOptions;
use std::path::PathBuf;

use anyhow::Context;
use proto_vmm::v1;
use proto_vmm::v1::pci_device::Kind;

use crate::arguments::Arguments;
use crate::files::{Descriptors, open, read_only};

/// More than any firmware of a test says.
const MAX_LOG_BYTES: u64 = 4 << 20;

/// Firmware, and what it is to do.
#[derive(Debug, Default)]
pub struct FirmwareFlags {
    /// Image of firmware that boots the machine.
    pub firmware: Option<PathBuf>,
    /// Its variable store, which it writes to.
    pub variables: Option<PathBuf>,
    /// Number of a disk to boot from, first choice first; disks count from 0.
    pub boot_disk: Vec<usize>,
    /// Firmware uses the serial console.
    pub firmware_serial: bool,
    /// A new file for what firmware says to people who debug it.
    pub firmware_log: Option<PathBuf>,
}

impl FirmwareFlags {
    /// Takes a flag if it is one of these.
    pub fn take(&mut self, name: &str, arguments: &mut Arguments) -> anyhow::Result<bool> {
        match name {
            "firmware" => self.firmware = Some(arguments.value(name)?),
            "variables" => self.variables = Some(arguments.value(name)?),
            "boot-disk" => self.boot_disk.push(arguments.value(name)?),
            "firmware-serial" => self.firmware_serial = true,
            "firmware-log" => self.firmware_log = Some(arguments.value(name)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether none was given.
    pub fn is_empty(&self) -> bool {
        self.firmware.is_none()
            && self.variables.is_none()
            && self.boot_disk.is_empty()
            && !self.firmware_serial
            && self.firmware_log.is_none()
    }
}

/// Opens all that the flags name; `devices` have the disks in their order.
pub fn boot(
    flags: &FirmwareFlags,
    devices: &[v1::PciDevice],
    descriptors: &mut Descriptors,
) -> anyhow::Result<Option<v1::FirmwareBoot>> {
    let Some(code) = &flags.firmware else {
        return Ok(None);
    };
    let disks = devices
        .iter()
        .filter(|device| matches!(device.kind, Some(Kind::Blk(_))));
    let places: Vec<_> = disks.filter_map(|device| device.address).collect();
    let place = |disk: &usize| {
        let place = places.get(*disk).copied();
        place.with_context(|| format!("there is no disk {disk} to boot from"))
    };
    let mut boot = v1::FirmwareBoot {
        code_fd: descriptors.add(read_only(code)?)?,
        boot_order: flags
            .boot_disk
            .iter()
            .map(place)
            .collect::<Result<_, _>>()?,
        serial_console: flags.firmware_serial,
        ..v1::FirmwareBoot::default()
    };
    if let Some(path) = &flags.variables {
        let file = open(OpenOptions::new().read(true).write(true), path)?;
        boot.variables_fd = Some(descriptors.add(file)?);
    }
    if let Some(path) = &flags.firmware_log {
        let file = open(
            OpenOptions::new().write(true).create(true).truncate(true),
            path,
        )?;
        boot.debug_log_fd = Some(descriptors.add(file)?);
        boot.debug_log_max_bytes = MAX_LOG_BYTES;
    }
    Ok(Some(boot))
}
