//! Why a VMI has no firmware.

use std::io;

use agent_domain::Lack;

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
        /// Path of the firmware's image.
        path: String,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The variable store cannot be had.
    #[error("the variable store {path} cannot be {action}")]
    Variables {
        /// Path of the variable store.
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
        /// Path of the variable store.
        path: String,
        /// Its length.
        bytes: u64,
        /// The template's length.
        wanted: u64,
    },
    /// Somebody else has the variable store.
    #[error("the variable store {path} is in use by another VMI or program")]
    InUse {
        /// Path of the variable store.
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
