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

mod file;
mod records;
mod tree;

use self::file::SECTOR_BYTES;
pub use self::file::{
    IsoError, IsoFile, MAX_FILES, MAX_ISO_BYTES, MAX_LABEL_BYTES, MAX_NAME_BYTES,
};
use self::tree::Tree;

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
    Ok(records::write(label, &Tree::new(files)?))
}

#[cfg(test)]
mod tests;
