//! Files of an image, and what can be wrong with them.

/// A logical sector.
pub(super) const SECTOR_BYTES: usize = 2048;

/// Longest name of a file or directory, in bytes: what Joliet's readers take, and a directory record has room for.
pub const MAX_NAME_BYTES: usize = 103;

/// Longest label, in bytes.
pub const MAX_LABEL_BYTES: usize = 32;

/// Most files.
pub const MAX_FILES: usize = 4096;

/// Most bytes of all files.
pub const MAX_ISO_BYTES: usize = 64 << 20;

/// A file of the volume.
#[derive(Clone, Copy, Debug)]
pub struct IsoFile<'a> {
    /// Its path, names with `/` between them.
    pub path: &'a str,
    /// Content of the file.
    pub data: &'a [u8],
}

/// A volume cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IsoError {
    /// The label is empty, too long or not ASCII.
    #[error("{0:?} is no volume label: 1 to {MAX_LABEL_BYTES} printable characters of ASCII are")]
    Label(String),
    /// A name that a directory cannot have.
    #[error(
        "{0:?} is no file name on a volume: 1 to {MAX_NAME_BYTES} bytes without control characters, '/', '\\', ':', ';', '*' and '?' are"
    )]
    Name(String),
    /// Two files have one path, or one's path is another's directory.
    #[error("{0:?} is on the volume twice")]
    Twice(String),
    /// More files or bytes than a volume may have.
    #[error("a volume has at most {MAX_FILES} files of {} MiB together", MAX_ISO_BYTES >> 20)]
    TooLarge,
}
