//! The image of firmware: read-only memory that ends at 4 GiB.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use vmm_memory::{RomMemory, Window};

use crate::firmware::error::{FirmwareError, MAX_IMAGE_BYTES, MIN_IMAGE_BYTES};

const PAGE_BYTES: u64 = 4096;
const END: u64 = 4 << 30;

/// Reads an image.
pub(super) fn read(file: &File) -> Result<Arc<RomMemory>, FirmwareError> {
    let bytes = file.metadata().map_err(FirmwareError::Read)?.len();
    let fits =
        (MIN_IMAGE_BYTES..=MAX_IMAGE_BYTES).contains(&bytes) && bytes.is_multiple_of(PAGE_BYTES);
    let (true, Ok(length)) = (fits, usize::try_from(bytes)) else {
        return Err(FirmwareError::Size(bytes));
    };
    let mut content = vec![0; length];
    file.read_exact_at(&mut content, 0)
        .map_err(FirmwareError::Read)?;
    Ok(Arc::new(RomMemory::of(&content)?))
}

/// Where an image of so many bytes lies, `above` bytes below 4 GiB.
pub(super) fn below_4_gib(bytes: u64, above: u64) -> Window {
    Window {
        base: END.saturating_sub(above).saturating_sub(bytes),
        bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_has_a_length_that_can_be_mapped() {
        for bytes in [
            0,
            MIN_IMAGE_BYTES - 4096,
            MIN_IMAGE_BYTES + 1,
            MAX_IMAGE_BYTES + 4096,
        ] {
            let file = tempfile::tempfile().unwrap();
            file.set_len(bytes).unwrap();
            assert!(matches!(read(&file), Err(FirmwareError::Size(seen)) if seen == bytes));
        }
        let file = tempfile::tempfile().unwrap();
        file.set_len(256 << 10).unwrap();
        assert_eq!(read(&file).unwrap().bytes(), 256 << 10);
        let window = below_4_gib(0x8_4000, 0x37_c000);
        assert_eq!((window.base, window.end()), (0xffc0_0000, 0xffc8_4000));
    }
}
