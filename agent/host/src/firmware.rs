//! Firmware of the node and the variables that guests' firmware keeps.

mod descriptor;
mod error;
mod find;
mod image;
mod kept;
mod variables;
mod words;

use std::fs::File;
use std::path::PathBuf;

use agent_domain::{Bootloader, FirmwareBoot};

pub(crate) use error::FirmwareError;
pub use find::{EfiFiles, FirmwareFinder, FirmwareSettings};
pub use kept::{KeptVariables, RemoveError, kept_variables, remove_kept_variables};
pub(crate) use words::stands_still;

use crate::machine_config::OpenedBoot;
use crate::work::Work;

/// Where the variables of a VMI's firmware are.
#[derive(Debug)]
pub(crate) struct VariablePlaces {
    /// Of the VMI itself.
    pub(crate) own: PathBuf,
    /// Of its name, when they are to outlive it.
    pub(crate) kept: PathBuf,
}

/// Opens what a VMI's firmware needs, and makes its variable store when there is none yet.
pub(crate) fn open(
    boot: &FirmwareBoot,
    finder: &FirmwareFinder,
    places: &VariablePlaces,
    work: &Work,
) -> Result<OpenedBoot, FirmwareError> {
    let (code, variables, serial) = match boot.bootloader {
        Bootloader::Bios { serial } => (finder.bios()?, None, serial),
        Bootloader::Efi { persistent } => {
            let files = finder.efi()?;
            let place = if persistent {
                &places.kept
            } else {
                &places.own
            };
            let variables = variables::open(&files.variables, place, work)?;
            // It finds the serial port by itself.
            (files.code, Some(variables), false)
        }
    };
    let code = File::open(&code).map_err(|source| FirmwareError::Open {
        path: code.display().to_string(),
        source,
    })?;
    Ok(OpenedBoot::Firmware {
        code: code.into(),
        variables: variables.map(Into::into),
        order: boot.order.clone(),
        serial,
    })
}
