//! A detour for data whose place in guest memory the host's disk cannot reach: with `O_DIRECT`,
//! buffers that are not aligned.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use vmm_sys::image::Alignment;

use super::failure::Failure;
use super::request::{Extent, Refusal};
use crate::virtio::queue::{Buffer, copy_in, copy_out, window};
use vmm_memory::GuestRam;

/// Data on the detour at a time; a request goes there piece by piece. A multiple of all block sizes.
pub(super) const BOUNCE_BYTES: usize = 128 << 10;
/// At least a page, which every host takes.
const LEAST_ALIGNMENT: usize = 4096;

/// The one buffer of a disk, made when it is first needed.
#[derive(Default)]
pub(super) struct Bounce {
    bytes: Vec<u8>,
}

impl Bounce {
    /// The buffer, aligned for `alignment`.
    fn buffer(&mut self, alignment: Alignment) -> &mut [u8] {
        let alignment = usize::try_from(alignment.memory)
            .unwrap_or(LEAST_ALIGNMENT)
            .max(LEAST_ALIGNMENT);
        let wanted = BOUNCE_BYTES + alignment;
        if self.bytes.len() < wanted {
            self.bytes = vec![0; wanted];
        }
        let start = self.bytes.as_ptr().align_offset(alignment);
        self.bytes
            .get_mut(start..)
            .and_then(|rest| rest.get_mut(..BOUNCE_BYTES))
            .unwrap_or_default()
    }

    /// Moves the data of `extent` between `buffers` and `image`.
    pub(super) fn transfer(
        &mut self,
        memory: &GuestRam,
        buffers: &[Buffer],
        (image, extent): (&File, Extent),
        is_read: bool,
        alignment: Alignment,
    ) -> Result<(), Failure> {
        let outside = |_| Failure::Guest(Refusal::IoError);
        self.pieces(extent, alignment, |piece, at| {
            let here = window(buffers, at, piece.len() as u64);
            let copied = if is_read {
                image.read_exact_at(piece, extent.offset + at)?;
                copy_in(memory, here, piece).map_err(outside)?
            } else {
                let copied = copy_out(memory, here, piece).map_err(outside)?;
                image.write_all_at(piece, extent.offset + at)?;
                copied
            };
            if copied == piece.len() {
                Ok(())
            } else {
                Err(Failure::Guest(Refusal::IoError))
            }
        })
    }

    /// Writes what `read` gives for each place to `image`.
    pub(super) fn copy(
        &mut self,
        (image, extent): (&File, Extent),
        alignment: Alignment,
        mut read: impl FnMut(&mut [u8], u64) -> io::Result<()>,
    ) -> Result<(), Failure> {
        self.pieces(extent, alignment, |piece, at| {
            read(piece, extent.offset + at)?;
            Ok(image.write_all_at(piece, extent.offset + at)?)
        })
    }

    /// Writes zeros.
    pub(super) fn write_zeroes(
        &mut self,
        (image, extent): (&File, Extent),
        alignment: Alignment,
    ) -> Result<(), Failure> {
        self.pieces(extent, alignment, |piece, at| {
            piece.fill(0);
            Ok(image.write_all_at(piece, extent.offset + at)?)
        })
    }

    fn pieces(
        &mut self,
        extent: Extent,
        alignment: Alignment,
        mut one: impl FnMut(&mut [u8], u64) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let buffer = self.buffer(alignment);
        let mut at = 0;
        while at < extent.bytes {
            let left = usize::try_from(extent.bytes - at).unwrap_or(usize::MAX);
            let length = left.min(buffer.len()).max(1);
            let Some(piece) = buffer.get_mut(..length) else {
                return Err(Failure::SHORT);
            };
            one(piece, at)?;
            at += length as u64;
        }
        Ok(())
    }
}
