//! What may be an image of firmware.

use std::io;
use std::path::Path;

/// Images of more bytes are none that the machine has room for.
pub(super) const MAX_IMAGE_BYTES: u64 = 8 << 20;
pub(super) const MIN_CODE_BYTES: u64 = 64 << 10;
/// Images are made of pages.
pub(super) const PAGE_BYTES: u64 = 4096;

/// The length of an image that the machine has room for; else what is wrong with it.
pub(super) fn image_bytes(path: &Path, least: u64) -> Result<u64, String> {
    let found = std::fs::metadata(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "is missing".to_owned(),
        _ => format!("cannot be read: {error}"),
    })?;
    let bytes = found.len();
    if !found.is_file() {
        return Err("is no file".to_owned());
    }
    if !(least..=MAX_IMAGE_BYTES).contains(&bytes) || bytes % PAGE_BYTES != 0 {
        return Err(format!(
            "has {bytes} bytes and is no image of firmware: these have a multiple of {PAGE_BYTES} from {least} to {MAX_IMAGE_BYTES}"
        ));
    }
    Ok(bytes)
}
