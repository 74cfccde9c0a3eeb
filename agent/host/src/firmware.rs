//! Firmware of the node and the variables that guests' firmware keeps.

mod descriptor;
mod find;
mod kept;
mod variables;
mod words;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use agent_domain::{Bootloader, FirmwareBoot, Lack};

pub use find::{EfiFiles, FirmwareFinder, FirmwareSettings};
pub use kept::{KeptVariables, RemoveError, kept_variables, remove_kept_variables};
pub(crate) use words::stands_still;

use crate::machine_config::OpenedBoot;
use crate::work::Work;

/// Images of more bytes are none that the machine has room for.
const MAX_IMAGE_BYTES: u64 = 8 << 20;
const MIN_CODE_BYTES: u64 = 64 << 10;
/// Images are made of pages.
const PAGE_BYTES: u64 = 4096;

/// Why there is no firmware to boot by.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FirmwareError {
    /// The node has none.
    #[error("{why} ({way_out})")]
    Lacks {
        /// What the node lacks, as the message has it.
        why: String,
        /// What an administrator can do about it.
        way_out: String,
    },
    /// The image cannot be opened.
    #[error("{path}: cannot be opened")]
    Open {
        /// Its path.
        path: String,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The variable store cannot be had.
    #[error("the variable store {path} cannot be {action}")]
    Variables {
        /// Its path.
        path: String,
        /// The operation, as a past participle.
        action: &'static str,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The variable store is of other firmware.
    #[error(
        "the variable store {path} has {bytes} bytes, and that of the node's firmware {wanted}: remove it, and \
         firmware begins with a new one, or give the node the firmware that it is of"
    )]
    OfOtherFirmware {
        /// Its path.
        path: String,
        /// Its length.
        bytes: u64,
        /// The template's length.
        wanted: u64,
    },
    /// Somebody else has the variable store.
    #[error("the variable store {path} is in use by another VMI or program")]
    InUse {
        /// Its path.
        path: String,
    },
}

impl From<Lack> for FirmwareError {
    fn from(Lack { why, way_out }: Lack) -> Self {
        Self::Lacks { why, way_out }
    }
}

impl FirmwareError {
    /// The reason of the condition.
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            Self::Lacks { .. } => "FirmwareNotFound",
            Self::Open { .. } => "FirmwareNotReadable",
            Self::Variables { .. } => "FirmwareVariablesFailed",
            Self::OfOtherFirmware { .. } => "FirmwareVariablesOfOtherFirmware",
            Self::InUse { .. } => "FirmwareVariablesInUse",
        }
    }
}

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

/// The length of an image that the machine has room for; else what is wrong with it.
fn image_bytes(path: &Path, least: u64) -> Result<u64, String> {
    let found = std::fs::metadata(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "is missing".to_owned(),
        _ => format!("cannot be read: {error}"),
    })?;
    let bytes = found.len();
    if !found.is_file() {
        return Err("is no file".to_owned());
    }
    if !(least..=MAX_IMAGE_BYTES).contains(&bytes) || bytes % PAGE_BYTES != 0 {
        return Err(format!(
            "has {bytes} bytes and is no image of firmware: these have a multiple of {PAGE_BYTES} from {least} to {MAX_IMAGE_BYTES}"
        ));
    }
    Ok(bytes)
}
