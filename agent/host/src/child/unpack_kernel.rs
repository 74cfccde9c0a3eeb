//! `kvmlet unpack-kernel`: reads a kernel on standard input, writes its ELF to standard output.
//!
//! Kernels come from whoever wrote the manifest or the image, and decoders are what attackers feed
//! first. So this runs as nobody, without network, with little memory, time and output, and with
//! the system calls that reading, decoding and writing take.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;

use agent_images::kernel::{UnpackLimits, unpack_kernel};

use crate::failure::chain;
use crate::helpers;
use agent_confined::{Bounds, confine};

/// The hidden subcommand's name.
pub(crate) const SUBCOMMAND: &str = "unpack-kernel";

/// A 60 MiB kernel takes half a second; emulated hosts are fifty times slower.
const CPU_SECONDS: u64 = 60;

pub(super) fn main() -> ExitCode {
    match unpack() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The parent shows this line to the user. That it cannot be written changes nothing.
            drop(writeln!(io::stderr(), "{}", chain(error.as_ref())));
            ExitCode::FAILURE
        }
    }
}

fn unpack() -> Result<(), Box<dyn std::error::Error>> {
    let limits = UnpackLimits::default();
    confine(Bounds {
        address_space_bytes: helpers::UNPACK_KERNEL.bytes,
        cpu_seconds: CPU_SECONDS,
        output_bytes: limits.output_bytes,
    })?;
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    unpack_kernel(&mut input, &mut output, limits)?;
    Ok(())
}
