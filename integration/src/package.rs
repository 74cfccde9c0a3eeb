//! The Debian packages that tests install.

use std::path::PathBuf;

use crate::artifacts;

/// The name of the package of `revision`, beside the programs.
#[must_use]
pub fn file(revision: u32) -> String {
    format!("kvmlet-{revision}.deb")
}

/// Why there is no package to install, if so.
#[must_use]
pub fn missing() -> Option<String> {
    path(1).err().map(|error| error.to_string())
}

/// The package of `revision`; the error says how to make it.
///
/// # Errors
/// When it is not there.
pub fn path(revision: u32) -> anyhow::Result<PathBuf> {
    artifacts::program(&file(revision))
}
