//! Why a disk image is not converted.

use std::io;

use super::format::DiskFormat;

/// Why a disk image could not be converted. Each variant names the image as the caller did.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The image cannot be read.
    #[error("{image} cannot be read at byte {offset}")]
    Read {
        /// Name of the image for messages.
        image: String,
        /// Byte offset of the access.
        offset: u64,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The image refers to bytes that its file does not have: it is damaged or was cut.
    #[error(
        "{image} is damaged or incomplete: {what} should be {length} bytes at byte {offset}, but the file has {file} bytes"
    )]
    Outside {
        /// Name of the image for messages.
        image: String,
        /// What should be there.
        what: String,
        /// Its first byte.
        offset: u64,
        /// Its length in bytes.
        length: u64,
        /// Length of the file in bytes.
        file: u64,
    },
    /// The image contradicts itself or its format.
    #[error("{image} is damaged: {what}; `qemu-img check` can tell more")]
    Damaged {
        /// Name of the image for messages.
        image: String,
        /// What is wrong, and where.
        what: String,
    },
    /// The image is what it says, but this release cannot read it.
    #[error("{image} {what}, which is not supported; {way_out}")]
    Unsupported {
        /// Name of the image for messages.
        image: String,
        /// The feature, as the message's predicate: "is encrypted".
        what: String,
        /// What the user can do.
        way_out: &'static str,
    },
    /// The image is not of the format that it should have.
    #[error("{image} is no {wanted} image, though {who}")]
    WrongFormat {
        /// Name of the image for messages.
        image: String,
        /// The format it should have.
        wanted: DiskFormat,
        /// Who asserts the format, with a verb: "its source says so".
        who: String,
    },
    /// The image is an overlay, and the image below was not handed over.
    #[error(
        "{image} has the backing file '{backing}'{format}; a name that an image holds is never opened: give the file with --backing, the nearest first"
    )]
    BackingNeeded {
        /// Name of the image for messages.
        image: String,
        /// The name it holds, without control characters.
        backing: String,
        /// The backing file's format, when the image names it.
        format: String,
    },
    /// More images were handed over than the chain has.
    #[error("{image} has no backing file, but {given} was given as one")]
    BackingNotNeeded {
        /// Name of the image for messages.
        image: String,
        /// What was handed over.
        given: String,
    },
    /// A limit of the caller's is exceeded.
    #[error("{image}: {what} is {value}, but {limit} is allowed{way_out}")]
    TooLarge {
        /// Name of the image for messages.
        image: String,
        /// What is too large.
        what: &'static str,
        /// The value found.
        value: u64,
        /// The largest value that the caller allows, in the same unit.
        limit: u64,
        /// What the user can do, or nothing.
        way_out: &'static str,
    },
    /// The output cannot be written.
    #[error("the disk cannot be written at byte {offset} of {total}")]
    Write {
        /// Byte offset of the access.
        offset: u64,
        /// Size of the disk in bytes.
        total: u64,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
}
