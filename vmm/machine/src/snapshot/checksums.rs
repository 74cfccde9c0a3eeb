//! Checksums of RAM: one for each chunk, so that a reader checks a chunk before it takes the next.

use std::io;

use super::blocks::{BLOCK_BYTES, ZERO};

/// Bytes of RAM that have one checksum. The last chunk may be shorter.
pub const RAM_CHUNK_BYTES: u64 = 2 << 20;

/// Checksums of so many bytes of RAM.
#[must_use]
pub fn ram_checksum_count(ram_bytes: u64) -> u64 {
    ram_bytes.div_ceil(RAM_CHUNK_BYTES)
}

/// Takes the bytes of RAM in order and gives the CRC-32 of each chunk to `each`.
pub(super) struct Summing<F> {
    /// Bytes taken.
    at: u64,
    end: u64,
    chunk: crc32fast::Hasher,
    /// Of a chunk that is all zeros, as most are.
    of_zeros: u32,
    each: F,
}

impl<F: FnMut(u64, u32) -> io::Result<()>> Summing<F> {
    /// Of `bytes` bytes in all; `each` gets a chunk's number and its checksum.
    pub(super) fn new(bytes: u64, each: F) -> Self {
        let mut zeros = crc32fast::Hasher::new();
        for _ in 0..RAM_CHUNK_BYTES / BLOCK_BYTES as u64 {
            zeros.update(&ZERO);
        }
        Self {
            at: 0,
            end: bytes,
            chunk: crc32fast::Hasher::new(),
            of_zeros: zeros.finalize(),
            each,
        }
    }

    /// Takes `bytes`, which lie within RAM.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let left = usize::try_from(self.left_of_chunk()).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(left.min(bytes.len()));
            if now.is_empty() {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            self.chunk.update(now);
            self.went(now.len() as u64)?;
            bytes = later;
        }
        Ok(())
    }

    /// Takes zeros up to `end`.
    pub(super) fn take_zeros(&mut self, end: u64) -> io::Result<()> {
        let end = end.min(self.end);
        while self.at < end {
            let left = self.left_of_chunk().min(end - self.at);
            if left == RAM_CHUNK_BYTES {
                (self.each)(self.at / RAM_CHUNK_BYTES, self.of_zeros)?;
                self.at += left;
            } else {
                let length = left.min(BLOCK_BYTES as u64);
                let zeros = usize::try_from(length).ok().and_then(|it| ZERO.get(..it));
                self.chunk.update(zeros.unwrap_or(&ZERO));
                self.went(length)?;
            }
        }
        Ok(())
    }

    /// Takes zeros up to the end of RAM.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.take_zeros(self.end)
    }

    fn left_of_chunk(&self) -> u64 {
        (RAM_CHUNK_BYTES - self.at % RAM_CHUNK_BYTES).min(self.end - self.at)
    }

    fn went(&mut self, bytes: u64) -> io::Result<()> {
        let number = self.at / RAM_CHUNK_BYTES;
        self.at += bytes;
        if !self.at.is_multiple_of(RAM_CHUNK_BYTES) && self.at < self.end {
            return Ok(());
        }
        (self.each)(number, std::mem::take(&mut self.chunk).finalize())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sums(
        bytes: u64,
        feed: impl FnOnce(&mut Summing<&mut dyn FnMut(u64, u32) -> io::Result<()>>),
    ) -> Vec<u32> {
        let mut sums = Vec::new();
        let mut each = |number: u64, sum: u32| {
            assert_eq!(number, sums.len() as u64);
            sums.push(sum);
            Ok(())
        };
        let mut summing = Summing::new(
            bytes,
            &mut each as &mut dyn FnMut(u64, u32) -> io::Result<()>,
        );
        feed(&mut summing);
        summing.finish().unwrap();
        sums
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn a_checksum_is_that_of_its_chunk_however_its_bytes_come(
            length in 1u64..(5 << 20),
            pieces in prop::collection::vec((0u64..(3 << 20), 1usize..(1 << 20), any::<u8>()), 0..6),
        ) {
            let mut whole = vec![0u8; usize::try_from(length).unwrap()];
            let found = sums(length, |summing| {
                let mut at = 0;
                for (gap, bytes, value) in pieces {
                    let start = at + gap;
                    let end = (start + bytes as u64).min(length);
                    if start >= end {
                        break;
                    }
                    let range = usize::try_from(start).unwrap()..usize::try_from(end).unwrap();
                    whole[range.clone()].fill(value);
                    summing.take_zeros(start).unwrap();
                    summing.take(&whole[range]).unwrap();
                    at = end;
                }
            });
            let chunk = usize::try_from(RAM_CHUNK_BYTES).unwrap();
            let wanted: Vec<u32> = whole.chunks(chunk).map(crc32fast::hash).collect();
            prop_assert_eq!(found.len() as u64, ram_checksum_count(length));
            prop_assert_eq!(found, wanted);
        }
    }
}
