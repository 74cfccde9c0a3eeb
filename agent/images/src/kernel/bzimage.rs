//! The setup header of a Linux bzImage, as far as its payload is concerned.
//!
//! Source: Linux `Documentation/arch/x86/boot.rst`, "Details of header fields".

use super::error::UnpackKernelError;

/// As many bytes as hold every field that is read here.
pub(super) const HEADER_BYTES: usize = 0x250;

const SETUP_SECTS: usize = 0x1f1;
const BOOT_FLAG: usize = 0x1fe;
const HEADER_MAGIC: usize = 0x202;
const VERSION: usize = 0x206;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;

/// `payload_offset` and `payload_length` exist since this version.
const PROTOCOL_2_08: u16 = 0x0208;

/// Where the compressed kernel lies in the file, within the file's bounds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Payload {
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// Reads the setup header; `None` when this is no bzImage.
pub(super) fn payload(head: &[u8], file_bytes: u64) -> Result<Option<Payload>, UnpackKernelError> {
    let is_bzimage = field::<2>(head, BOOT_FLAG) == Some([0x55, 0xaa])
        && field::<4>(head, HEADER_MAGIC) == Some(*b"HdrS");
    if !is_bzimage {
        return Ok(None);
    }
    let truncated = || UnpackKernelError::PayloadOutside {
        offset: 0,
        length: 0,
        file: file_bytes,
    };
    let [minor, major] = field::<2>(head, VERSION).ok_or_else(truncated)?;
    if u16::from_le_bytes([minor, major]) < PROTOCOL_2_08 {
        return Err(UnpackKernelError::OldProtocol { major, minor });
    }
    let [sectors] = field::<1>(head, SETUP_SECTS).ok_or_else(truncated)?;
    // "If the setup_sects field contains 0, the real value is 4"; the boot sector comes on top.
    let sectors = if sectors == 0 { 4 } else { u64::from(sectors) };
    let protected_mode = (sectors + 1) * 512;
    let offset = u32::from_le_bytes(field(head, PAYLOAD_OFFSET).ok_or_else(truncated)?);
    let length = u32::from_le_bytes(field(head, PAYLOAD_LENGTH).ok_or_else(truncated)?);
    // Sums of a u32 and at most 131072: no overflow in u64.
    let offset = protected_mode + u64::from(offset);
    let length = u64::from(length);
    if length < 8 || offset + length > file_bytes {
        return Err(UnpackKernelError::PayloadOutside {
            offset,
            length,
            file: file_bytes,
        });
    }
    Ok(Some(Payload { offset, length }))
}

fn field<const N: usize>(head: &[u8], at: usize) -> Option<[u8; N]> {
    head.get(at..at + N)?.try_into().ok()
}
