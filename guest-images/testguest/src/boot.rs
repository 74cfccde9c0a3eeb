//! What the boot protocol hands over: command line and the ACPI root pointer.

use testguest_lib::bytes::{u32_at, u64_at};

use crate::entry::{PROTOCOL_LINUX64, PROTOCOL_PVH};
use crate::memory;

const PVH_MAGIC: u32 = 0x336e_c578;
/// Bytes of `hvm_start_info` version 0, which has all this guest reads.
const PVH_BYTES: usize = 40;
const BOOT_PARAMS_BYTES: usize = 4096;
/// Offsets of Linux's `boot_params` (Documentation/arch/x86/zero-page.rst, boot.rst).
const ACPI_RSDP_ADDR: usize = 0x70;
const EXT_CMD_LINE_PTR: usize = 0xc8;
const CMD_LINE_PTR: usize = 0x228;
const MAX_COMMAND_LINE_BYTES: usize = 2048;

/// The boot protocol's information in one form.
pub struct BootInformation {
    /// `pvh`, `linux64` or, when the structure makes no sense, `unknown`.
    pub protocol: &'static str,
    /// The command line; empty when there is none.
    pub command_line: &'static str,
    /// Address of the RSDP, if the boot protocol names it.
    pub rsdp: Option<u64>,
}

/// Reads the structure at `address`, which the boot protocol `protocol` left there.
pub fn information(protocol: u64, address: u64) -> BootInformation {
    let (name, command_line, rsdp) = match protocol {
        PROTOCOL_PVH => pvh(address),
        PROTOCOL_LINUX64 => linux64(address),
        _ => None,
    }
    .unwrap_or(("unknown", 0, 0));
    BootInformation {
        protocol: name,
        command_line: text_at(command_line),
        rsdp: (rsdp != 0).then_some(rsdp),
    }
}

fn pvh(address: u64) -> Option<(&'static str, u64, u64)> {
    let start_info = memory::boot_data(address, PVH_BYTES)?;
    if u32_at(start_info, 0)? != PVH_MAGIC {
        return None;
    }
    Some(("pvh", u64_at(start_info, 24)?, u64_at(start_info, 32)?))
}

fn linux64(address: u64) -> Option<(&'static str, u64, u64)> {
    let boot_params = memory::boot_data(address, BOOT_PARAMS_BYTES)?;
    let command_line = u64::from(u32_at(boot_params, CMD_LINE_PTR)?)
        | u64::from(u32_at(boot_params, EXT_CMD_LINE_PTR)?) << 32;
    Some((
        "linux64",
        command_line,
        u64_at(boot_params, ACPI_RSDP_ADDR)?,
    ))
}

fn text_at(address: u64) -> &'static str {
    let bytes = memory::boot_data(address, MAX_COMMAND_LINE_BYTES).unwrap_or(&[]);
    let length = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    let text = &bytes[..length];
    match core::str::from_utf8(text) {
        Ok(text) => text,
        Err(error) => core::str::from_utf8(&text[..error.valid_up_to()]).unwrap_or(""),
    }
}
