//! What a device may do wrong.

use core::fmt;

/// Why a device's test failed.
#[derive(Debug)]
pub enum DeviceError {
    /// A capability, BAR or table is not there or not usable.
    Missing(&'static str),
    /// The device refuses something it has to accept.
    Refused(&'static str),
    /// Nothing happened in time.
    Timeout(&'static str),
    /// The device was done but no interrupt came.
    NoInterrupt(&'static str),
    /// The device used a descriptor that it was not given.
    WrongDescriptor(u32),
    /// A value is not what it has to be.
    Mismatch {
        /// Name of the value.
        what: &'static str,
        /// As it should be.
        expected: u64,
        /// As it is.
        got: u64,
    },
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(what) => write!(f, "{what} is missing"),
            Self::Refused(what) => write!(f, "device refused {what}"),
            Self::Timeout(what) => write!(f, "timeout: {what}"),
            Self::NoInterrupt(what) => write!(f, "no interrupt: {what}"),
            Self::WrongDescriptor(id) => write!(f, "device used descriptor {id}"),
            Self::Mismatch {
                what,
                expected,
                got,
            } => {
                write!(f, "{what}: expected {expected:#x} got {got:#x}")
            }
        }
    }
}
