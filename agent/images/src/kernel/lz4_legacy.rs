//! The LZ4 legacy frame: a magic number, then blocks of at most 8 MiB, each behind its packed size.
//!
//! Source: `lz4_Frame_format.md`, "Legacy frame". There is no end mark: the data ends where the file
//! does, or where a size cannot be one.

use std::io::{self, Read, Write};

const MAGIC: u32 = 0x184c_2102;
const BLOCK_BYTES: usize = 8 << 20;

/// Worst case of an incompressible block, `LZ4_compressBound`.
const PACKED_BLOCK_BYTES: usize = BLOCK_BYTES + BLOCK_BYTES / 255 + 16;

pub(super) fn decode<R: Read, W: Write>(mut data: R, output: &mut W) -> io::Result<()> {
    if read_u32(&mut data)? != Some(MAGIC) {
        return Err(invalid("no LZ4 legacy frame starts here"));
    }
    let mut packed = Vec::new();
    let mut plain = vec![0; BLOCK_BYTES];
    while let Some(size) = read_u32(&mut data)? {
        if size == MAGIC {
            // Frames may be concatenated.
            continue;
        }
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        if size > PACKED_BLOCK_BYTES {
            return Err(invalid("an LZ4 block is larger than a block can be"));
        }
        packed.clear();
        // Grows with what is really there, not with what the size promises.
        let read = (&mut data).take(size as u64).read_to_end(&mut packed)?;
        if read != size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let count = lz4_flex::block::decompress_into(&packed, &mut plain)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        output.write_all(plain.get(..count).unwrap_or_default())?;
        if count < BLOCK_BYTES {
            // Only the last block of a frame is short.
            return Ok(());
        }
    }
    Ok(())
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The next little-endian number; `None` at the end of the data.
fn read_u32<R: Read>(data: &mut R) -> io::Result<Option<u32>> {
    let mut bytes = Vec::with_capacity(4);
    data.take(4).read_to_end(&mut bytes)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    <[u8; 4]>::try_from(bytes.as_slice())
        .map(|bytes| Some(u32::from_le_bytes(bytes)))
        .map_err(|_| io::ErrorKind::UnexpectedEof.into())
}
