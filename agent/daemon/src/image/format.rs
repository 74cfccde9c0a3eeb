//! Formats of disk images, as the command line has them.

use clap::ValueEnum;

/// Formats as users name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// The disk's bytes as they are
    Raw,
    /// QEMU's copy-on-write format
    Qcow2,
}
