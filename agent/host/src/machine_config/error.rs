//! Why a VMI has no machine.

use crate::zone::ZoneError;

/// Why there is no machine.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AssembleError {
    /// A device has no place: the machine is full.
    #[error(
        "{what} {name} found no place on a PCI bus: the machine has more devices than room for them"
    )]
    NoPlace {
        /// Kind of the device.
        what: &'static str,
        /// Name of the device in the spec.
        name: String,
    },
    /// Nobody opened what a device is made of.
    #[error("{what} {name} has nothing behind it: that was not opened on the host")]
    NotOpened {
        /// Kind of the device.
        what: &'static str,
        /// As the spec has it, or of a device that there is one of.
        name: String,
    },
    /// The clock's zone is not known.
    #[error(transparent)]
    Zone(#[from] ZoneError),
}

impl AssembleError {
    /// The reason of the condition.
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            Self::NoPlace { .. } => "TooManyDevices",
            Self::NotOpened { .. } => "DeviceNotOpened",
            Self::Zone(_) => "TimezoneNotFound",
        }
    }
}
