//! Parts of guest memory that a chain names, and copies from and to them.
//!
//! Nearly all headers and answers are one buffer in one piece of RAM, and there is one or two of them to
//! every request: those are copied without a list of parts.

use std::io;

use vm_memory::bitmap::Bitmap;
use vm_memory::{
    GuestAddress, GuestMemory, GuestMemoryBackend, GuestMemoryRegion, Permissions, VolatileSlice,
};
use vmm_memory::DirtySlice;

use vmm_memory::GuestRam;

/// A buffer in guest memory, as the descriptor names it: not yet known to be RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Guest-physical address.
    pub address: u64,
    /// Length in bytes.
    pub bytes: u32,
}

/// A piece of RAM in this process.
pub(super) type Piece<'a> = VolatileSlice<'a, DirtySlice<'a>>;

pub(super) fn total(buffers: &[Buffer]) -> u64 {
    buffers.iter().map(|buffer| u64::from(buffer.bytes)).sum()
}

/// `count` bytes of `buffers` from byte `skip` on, as far as there are that many.
pub fn window(buffers: &[Buffer], skip: u64, count: u64) -> impl Iterator<Item = Buffer> + '_ {
    let mut skip = skip;
    let mut left = count;
    buffers.iter().filter_map(move |buffer| {
        let cut = skip.min(u64::from(buffer.bytes));
        skip -= cut;
        let bytes = (u64::from(buffer.bytes) - cut).min(left);
        left -= bytes;
        let bytes = u32::try_from(bytes).ok().filter(|bytes| *bytes > 0)?;
        let address = buffer.address.checked_add(cut)?;
        Some(Buffer { address, bytes })
    })
}

/// The host memory of `buffers`, each of which may be several slices.
///
/// # Errors
/// `InvalidInput`: a buffer is not all RAM.
pub fn slices_of(
    memory: &GuestRam,
    buffers: impl Iterator<Item = Buffer>,
) -> io::Result<Vec<VolatileSlice<'_, DirtySlice<'_>>>> {
    let mut slices = Vec::with_capacity(buffers.size_hint().0.max(4));
    for buffer in buffers {
        if let Some(piece) = piece_of(memory, buffer) {
            slices.push(piece);
            continue;
        }
        for part in parts_of(memory, buffer).ok_or_else(outside)? {
            slices.push(part.ok_or_else(outside)?);
        }
    }
    Ok(slices)
}

/// The one piece of RAM that `buffer` lies in, if it is one.
pub(super) fn piece_of(memory: &GuestRam, buffer: Buffer) -> Option<Piece<'_>> {
    let bytes = usize::try_from(buffer.bytes).ok()?;
    let (region, offset) = memory.to_region_addr(GuestAddress(buffer.address))?;
    region.get_slice(offset, bytes).ok()
}

/// The pieces of RAM that `buffer` lies in; none where it leaves RAM, at which they end. Nothing at all
/// for a buffer that goes beyond the end of all addresses.
fn parts_of(memory: &GuestRam, buffer: Buffer) -> Option<impl Iterator<Item = Option<Piece<'_>>>> {
    let count = usize::try_from(buffer.bytes).ok()?;
    buffer.address.checked_add(u64::from(buffer.bytes))?;
    let address = GuestAddress(buffer.address);
    let parts = GuestMemory::get_slices(memory, address, count, Permissions::ReadWrite);
    Some(parts.ok()?.map(Result::ok))
}

/// The only one of `buffers`, if it is one piece of RAM. Else what was taken of `buffers`.
fn only_piece<'a>(
    memory: &'a GuestRam,
    buffers: &mut impl Iterator<Item = Buffer>,
) -> Result<Piece<'a>, [Option<Buffer>; 2]> {
    let taken = [buffers.next(), buffers.next()];
    let [Some(only), None] = taken else {
        return Err(taken);
    };
    piece_of(memory, only).ok_or(taken)
}

/// Copies `data` into `buffers`; returns the bytes copied, fewer when the buffers are short.
///
/// # Errors
/// `InvalidInput`: a buffer is not all RAM.
pub fn copy_in(
    memory: &GuestRam,
    mut buffers: impl Iterator<Item = Buffer>,
    mut data: &[u8],
) -> io::Result<usize> {
    let taken = match only_piece(memory, &mut buffers) {
        Ok(piece) => {
            let count = piece.len().min(data.len());
            piece.copy_from(data.get(..count).unwrap_or_default());
            return Ok(count);
        }
        Err(taken) => taken,
    };
    let mut copied = 0;
    for slice in slices_of(memory, taken.into_iter().flatten().chain(buffers))? {
        let count = slice.len().min(data.len());
        let (now, later) = data.split_at(count);
        slice.copy_from(now);
        data = later;
        copied += count;
        if data.is_empty() {
            break;
        }
    }
    Ok(copied)
}

/// Copies `buffers` into `data`; returns the bytes copied, fewer when the buffers are short.
///
/// # Errors
/// `InvalidInput`: a buffer is not all RAM.
pub fn copy_out(
    memory: &GuestRam,
    mut buffers: impl Iterator<Item = Buffer>,
    data: &mut [u8],
) -> io::Result<usize> {
    let taken = match only_piece(memory, &mut buffers) {
        Ok(piece) => return Ok(piece.copy_to(data)),
        Err(taken) => taken,
    };
    let mut copied = 0;
    for slice in slices_of(memory, taken.into_iter().flatten().chain(buffers))? {
        let Some(rest) = data.get_mut(copied..).filter(|rest| !rest.is_empty()) else {
            break;
        };
        copied += slice.copy_to(rest);
    }
    Ok(copied)
}

/// Marks `buffers` dirty, which somebody else (the kernel) has written, as far as they are RAM.
pub fn mark_written(memory: &GuestRam, buffers: impl Iterator<Item = Buffer>) {
    for buffer in buffers {
        for slice in parts_of(memory, buffer).into_iter().flatten().flatten() {
            slice.bitmap().mark_dirty(0, slice.len());
        }
    }
}

fn outside() -> io::Error {
    io::ErrorKind::InvalidInput.into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use vm_memory::Bytes;
    use vmm_memory::{Layout, create_ram};

    use super::*;

    const RAM_BYTES: u64 = 1 << 20;

    fn ram() -> GuestRam {
        create_ram(&Layout::new(RAM_BYTES, 40).unwrap()).unwrap()
    }

    fn buffers(count: usize) -> impl Strategy<Value = Vec<Buffer>> {
        let near = 0..RAM_BYTES + 64;
        let address = prop_oneof![8 => near, 1 => any::<u64>()];
        let buffer = (address, 0u32..200).prop_map(|(address, bytes)| Buffer { address, bytes });
        prop::collection::vec(buffer, 0..count)
    }

    proptest! {
        /// One buffer or several: what is copied is what their addresses hold, and nothing is when
        /// one of them is not RAM.
        #[test]
        fn copies_are_those_of_each_byte(buffers in buffers(4), bytes in 0usize..300) {
            let memory = ram();
            let mut content = vec![0; usize::try_from(RAM_BYTES).unwrap()];
            for (byte, value) in content.iter_mut().zip((0..=250u8).cycle()) {
                *byte = value;
            }
            memory.write_slice(&content, GuestAddress(0)).unwrap();
            let addresses: Vec<u64> = buffers
                .iter()
                .flat_map(|buffer| (0..u64::from(buffer.bytes)).map(|at| buffer.address.wrapping_add(at)))
                .collect();
            let is_ram = buffers.iter().all(|buffer| {
                let end = buffer.address.checked_add(buffer.bytes.into());
                end.is_some_and(|end| end <= RAM_BYTES) || buffer.bytes == 0
            });
            let mut data = vec![0xee; bytes];
            let copied = copy_out(&memory, buffers.iter().copied(), &mut data);
            if is_ram {
                prop_assert_eq!(copied.unwrap(), bytes.min(addresses.len()));
                for (byte, address) in data.iter().zip(&addresses) {
                    prop_assert_eq!(*byte, content[usize::try_from(*address).unwrap()]);
                }
            } else {
                prop_assert!(copied.is_err());
            }
            let copied = copy_in(&memory, buffers.iter().copied(), &vec![0xff; bytes]);
            let mut after = vec![0; content.len()];
            memory.read_slice(&mut after, GuestAddress(0)).unwrap();
            if is_ram {
                prop_assert_eq!(copied.unwrap(), bytes.min(addresses.len()));
                for address in addresses.iter().take(bytes) {
                    content[usize::try_from(*address).unwrap()] = 0xff;
                }
            } else {
                prop_assert!(copied.is_err());
            }
            prop_assert!(after == content);
        }
    }
}
