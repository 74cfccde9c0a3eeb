//! Frames: pieces of a file, one behind the other, that count once they are on disk as a whole.

use std::io;

use redb::StorageBackend;

/// Checksum, length of the frame, epoch, and number within the epoch.
pub(crate) const PREFIX_BYTES: usize = 4 + 4 + 8 + 8;

/// Bytes of one frame at most.
pub(crate) const FRAME_BYTES: usize = 1 << 20;

/// Gives a frame its prefix. Its bytes begin with room for that.
pub(crate) fn finish(frame: &mut [u8], epoch: u64, number: u64) {
    let prefix = prefix_of(frame, epoch, number);
    if let Some(start) = frame.first_chunk_mut() {
        *start = prefix;
    }
}

/// The prefix of a frame of these bytes.
fn prefix_of(frame: &[u8], epoch: u64, number: u64) -> [u8; PREFIX_BYTES] {
    let mut prefix = [0; PREFIX_BYTES];
    let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
    let (checksum, fields) = prefix.split_at_mut(4);
    let bytes = length.to_le_bytes().into_iter();
    let bytes = bytes.chain(epoch.to_le_bytes()).chain(number.to_le_bytes());
    fields
        .iter_mut()
        .zip(bytes)
        .for_each(|(place, byte)| *place = byte);
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(fields);
    hasher.update(frame.get(PREFIX_BYTES..).unwrap_or_default());
    checksum.copy_from_slice(&hasher.finalize().to_le_bytes());
    prefix
}

/// The frame of this epoch and number at an offset, if it is there as a whole.
///
/// # Errors
/// When the file cannot be read.
pub(crate) fn frame_at(
    file: &(impl StorageBackend + ?Sized),
    offset: u64,
    (epoch, number): (u64, u64),
) -> io::Result<Option<Vec<u8>>> {
    let available = file.len()?.saturating_sub(offset);
    let mut prefix = [0; PREFIX_BYTES];
    if available < PREFIX_BYTES as u64 {
        return Ok(None);
    }
    file.read(offset, &mut prefix)?;
    let [_, _, _, _, a, b, c, d, ..] = prefix;
    let length = u32::from_le_bytes([a, b, c, d]);
    let fits = (PREFIX_BYTES..=FRAME_BYTES).contains(&(length as usize));
    if !fits || u64::from(length) > available {
        return Ok(None);
    }
    let mut frame = vec![0; length as usize];
    file.read(offset, &mut frame)?;
    let is_whole = frame.first_chunk() == Some(&prefix_of(&frame, epoch, number));
    Ok(is_whole.then_some(frame))
}
