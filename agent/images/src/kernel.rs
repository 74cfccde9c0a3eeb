//! Kernels: what a file is, and how the ELF inside a compressed one is brought to light.
//!
//! A Linux bzImage carries its real kernel as a compressed ELF. Unpacking it on the host saves the
//! guest the decompression and lets it be entered by PVH; what is lost is the address randomisation
//! that the kernel's own decompressor would have done.

mod bzimage;
mod compression;
mod decode;
mod error;
mod lz4_legacy;

use std::io::{self, Read, Seek, SeekFrom, Write};

pub use self::compression::Compression;
pub use self::error::UnpackKernelError;
use crate::bounded::{BoundedWriter, is_limit};

/// What a kernel file holds at its outermost layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelFormat {
    /// An ELF file, as it is.
    Elf,
    /// A compressed file that is not a bzImage: an ELF is expected inside.
    Compressed(Compression),
    /// A bzImage whose payload is compressed this way.
    BzImage(Compression),
}

/// What unpacking did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unpacked {
    /// What the input was.
    pub format: KernelFormat,
    /// Size of the ELF that was written, in bytes.
    pub elf_bytes: u64,
}

/// Bounds of one unpacking.
#[derive(Debug, Clone, Copy)]
pub struct UnpackLimits {
    /// Largest input that is looked at, in bytes.
    pub input_bytes: u64,
    /// Largest ELF that is written, in bytes.
    pub output_bytes: u64,
}

impl Default for UnpackLimits {
    /// Distribution kernels are 5 to 20 MiB packed and 30 to 100 MiB unpacked.
    fn default() -> Self {
        Self {
            input_bytes: 128 << 20,
            output_bytes: 256 << 20,
        }
    }
}

const ELF_MAGIC: [u8; 4] = *b"\x7fELF";

/// Tells what a kernel file is, by its first bytes and its setup header, without unpacking it.
///
/// # Errors
/// Everything of [`UnpackKernelError`] that the headers alone can show.
pub fn kernel_format<R: Read + Seek>(input: &mut R) -> Result<KernelFormat, UnpackKernelError> {
    locate(input, UnpackLimits::default().input_bytes).map(|found| found.format)
}

/// Writes the ELF that a kernel file is or holds.
///
/// The input may be an ELF, a compressed ELF, or a bzImage. `output` may have been written to in
/// part when an error is returned.
///
/// # Errors
/// See [`UnpackKernelError`].
pub fn unpack_kernel<R: Read + Seek, W: Write>(
    input: &mut R,
    output: &mut W,
    limits: UnpackLimits,
) -> Result<Unpacked, UnpackKernelError> {
    let located = locate(input, limits.input_bytes)?;
    input.seek(SeekFrom::Start(located.offset))?;
    let mut checked = ElfCheck::new(BoundedWriter::new(&mut *output, limits.output_bytes));
    let data = input.take(located.length);
    let result = match located.compression() {
        None => copy_plain(data, &mut checked),
        Some(compression) => decode::decode(compression, data, &mut checked)
            .map_err(|error| UnpackKernelError::Damaged(compression, error)),
    };
    result.map_err(|error| name_cause(error, limits.output_bytes))?;
    let elf_bytes = checked.inner.written_bytes();
    if !checked.seen() {
        return Err(UnpackKernelError::NotElfInside);
    }
    if let Some(announced) = located.announced_bytes
        && announced != elf_bytes
    {
        return Err(UnpackKernelError::WrongSize {
            announced,
            actual: elf_bytes,
        });
    }
    output.flush()?;
    Ok(Unpacked {
        format: located.format,
        elf_bytes,
    })
}

fn copy_plain<R: Read, W: Write>(mut data: R, output: &mut W) -> Result<(), UnpackKernelError> {
    io::copy(&mut data, output)?;
    Ok(())
}

/// Finds the error behind a decoder's error: the limit and a missing ELF header end decoders early.
fn name_cause(error: UnpackKernelError, limit_bytes: u64) -> UnpackKernelError {
    match &error {
        UnpackKernelError::Damaged(_, cause) | UnpackKernelError::Io(cause) => {
            if is_limit(cause) {
                UnpackKernelError::OutputTooLarge(limit_bytes)
            } else if cause
                .get_ref()
                .is_some_and(|inner| inner.is::<NoElfHeader>())
            {
                UnpackKernelError::NotElfInside
            } else {
                error
            }
        }
        _ => error,
    }
}

/// Where in a kernel file the ELF, or its compressed form, lies.
#[derive(Debug)]
struct Located {
    format: KernelFormat,
    offset: u64,
    length: u64,
    announced_bytes: Option<u64>,
}

impl Located {
    fn compression(&self) -> Option<Compression> {
        match self.format {
            KernelFormat::Elf => None,
            KernelFormat::Compressed(how) | KernelFormat::BzImage(how) => Some(how),
        }
    }
}

fn locate<R: Read + Seek>(input: &mut R, limit_bytes: u64) -> Result<Located, UnpackKernelError> {
    let file_bytes = input.seek(SeekFrom::End(0))?;
    if file_bytes > limit_bytes {
        return Err(UnpackKernelError::InputTooLarge {
            size: file_bytes,
            limit: limit_bytes,
        });
    }
    let head = read_at_most::<{ bzimage::HEADER_BYTES }>(input, 0)?;
    if head.starts_with(&ELF_MAGIC) {
        return Ok(Located {
            format: KernelFormat::Elf,
            offset: 0,
            length: file_bytes,
            announced_bytes: None,
        });
    }
    if let Some(payload) = bzimage::payload(&head, file_bytes)? {
        return locate_payload(input, &payload);
    }
    Ok(Located {
        format: KernelFormat::Compressed(decode::by_magic(&head)?),
        offset: 0,
        length: file_bytes,
        announced_bytes: None,
    })
}

fn locate_payload<R: Read + Seek>(
    input: &mut R,
    payload: &bzimage::Payload,
) -> Result<Located, UnpackKernelError> {
    let magic = read_at_most::<16>(input, payload.offset)?;
    let compression = decode::by_magic(&magic)?;
    let (length, announced_bytes) = if compression == Compression::Gzip {
        (payload.length, None)
    } else {
        // The kernel's build appends the unpacked size to every format but gzip, which has it.
        let data = payload.length.saturating_sub(4);
        let tail = read_at_most::<4>(input, payload.offset + data)?;
        let size = <[u8; 4]>::try_from(tail.as_slice()).map(u32::from_le_bytes);
        (data, size.ok().map(u64::from))
    };
    Ok(Located {
        format: KernelFormat::BzImage(compression),
        offset: payload.offset,
        length,
        announced_bytes,
    })
}

/// Up to `N` bytes at `offset`; fewer when the file ends before.
fn read_at_most<const N: usize>(
    input: &mut (impl Read + Seek),
    offset: u64,
) -> Result<Vec<u8>, UnpackKernelError> {
    input.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::with_capacity(N);
    input.take(N as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Raised by [`ElfCheck`] through a decoder.
#[derive(Debug, thiserror::Error)]
#[error("the first bytes are not those of an ELF file")]
struct NoElfHeader;

/// Passes bytes on when the first four are those of an ELF file: a wrong guess about a payload ends
/// at once instead of after 256 MiB.
struct ElfCheck<W> {
    inner: W,
    matched: usize,
}

impl<W: Write> ElfCheck<W> {
    fn new(inner: W) -> Self {
        Self { inner, matched: 0 }
    }

    fn seen(&self) -> bool {
        self.matched == ELF_MAGIC.len()
    }
}

impl<W: Write> Write for ElfCheck<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let expected = ELF_MAGIC.get(self.matched..).unwrap_or_default();
        let looked_at = expected.len().min(buf.len());
        if expected.get(..looked_at) != buf.get(..looked_at) {
            return Err(io::Error::other(NoElfHeader));
        }
        let count = self.inner.write(buf)?;
        self.matched += looked_at.min(count);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests;
