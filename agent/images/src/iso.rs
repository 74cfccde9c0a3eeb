//! A volume of ISO 9660 with Rock Ridge and Joliet: files in, an image out, and the same files give the same bytes.
//!
//! Sources: ECMA-119 (ISO 9660), IEEE P1281 (SUSP 1.10), IEEE P1282 (RRIP 1991A), Joliet Specification. Linux
//! reads Rock Ridge names, Windows Joliet's; both are what the caller gave. The names of ISO 9660 itself are
//! made of them, unique, in 8.3.
//!
//! ```text
//! sector 16  primary volume descriptor     20..  directories, ISO 9660, then Joliet
//! sector 17  supplementary (Joliet)              files
//! sector 18  terminator
//! sector 19  Rock Ridge's ER field         path tables follow the terminator's sector
//! ```

mod records;
mod tree;

use records::Writer;
use tree::Tree;

/// A logical sector.
const SECTOR_BYTES: usize = 2048;

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

/// Makes a volume of `files`. Names are sorted, times are 1970-01-01, everything belongs to root and may be read by all.
///
/// # Errors
/// See [`IsoError`].
pub fn iso(label: &str, files: &[IsoFile<'_>]) -> Result<Vec<u8>, IsoError> {
    let printable = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    if label.is_empty() || label.len() > MAX_LABEL_BYTES || !label.bytes().all(printable) {
        return Err(IsoError::Label(label.to_owned()));
    }
    let bytes = files.iter().fold(0_usize, |sum, file| {
        sum.saturating_add(file.data.len().next_multiple_of(SECTOR_BYTES))
    });
    if files.len() > MAX_FILES || bytes > MAX_ISO_BYTES {
        return Err(IsoError::TooLarge);
    }
    Ok(Writer::new(label, Tree::new(files)?).write())
}

#[cfg(test)]
mod tests;
