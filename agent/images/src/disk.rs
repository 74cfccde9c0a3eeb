//! Disk images: raw and qcow2 in, raw bytes out.
//!
//! Every byte of an image was written by somebody else, and so was every name in it. So nothing is
//! ever opened here: a chain of images is what the caller hands over, and what an image says about
//! files of the host is only ever shown. All offsets are checked against the file before they are
//! used, all tables are read before a byte is written, no cluster is used twice, and the output is as
//! large as the limits say at most. Source: QEMU's `docs/interop/qcow2.txt`.

mod chain;
mod convert;
mod error;
mod format;
mod info;
mod probe;
mod qcow2;
mod source;

pub use self::convert::{Converted, WriteAt, convert, data_runs};
pub use self::error::DiskError;
pub use self::format::{BackingInfo, ConvertLimits, DiskFormat, MAX_CHAIN};
pub use self::info::{DiskInfo, Qcow2Info, disk_info};
pub use self::source::{Layer, ReadAt};

#[cfg(test)]
mod tests;
