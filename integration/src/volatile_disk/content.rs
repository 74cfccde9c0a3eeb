//! What is on a disk, and what its cache holds.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::sim::Random;

/// What a disk writes as a whole, in bytes.
pub const SECTOR_BYTES: u64 = SECTOR_SIZE as u64;
const SECTOR_SIZE: usize = 512;

/// The cache writes the oldest sectors back when it holds more than these.
const MAX_CACHED_SECTORS: usize = (64 << 20) / SECTOR_SIZE;

type Sector = [u8; SECTOR_SIZE];

/// The sectors of a disk; the others are zeros.
#[derive(Clone, Debug, Default)]
pub struct Content(BTreeMap<u64, Arc<Sector>>);

impl Content {
    /// What an image file has on it.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn of_file(path: &Path) -> io::Result<Self> {
        Ok(Self::of_bytes(&std::fs::read(path)?))
    }

    /// What a disk of these bytes has on it.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let sectors = bytes.as_chunks::<SECTOR_SIZE>().0.iter().zip(0..);
        let written = sectors.filter(|(sector, _)| sector.iter().any(|byte| *byte != 0));
        Self(
            written
                .map(|(sector, number)| (number, Arc::new(*sector)))
                .collect(),
        )
    }

    /// Writes it to a new, sparse file of `bytes`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn to_file(&self, path: &Path, bytes: u64) -> io::Result<()> {
        let file = File::create(path)?;
        file.set_len(bytes)?;
        for (number, sector) in &self.0 {
            file.write_all_at(sector.as_slice(), number * SECTOR_BYTES)?;
        }
        Ok(())
    }

    /// Content of sector `number`; zeros where nothing was written.
    #[must_use]
    pub fn sector(&self, number: u64) -> [u8; SECTOR_SIZE] {
        self.0
            .get(&number)
            .map_or([0; SECTOR_SIZE], |sector| **sector)
    }
}

/// A disk with a cache that forgets.
#[derive(Clone, Debug)]
pub struct Volatile {
    /// The size in bytes.
    pub bytes: u64,
    /// Content that reads return.
    current: Content,
    durable: Content,
    /// What was written since the last flush, in its order.
    cached: Vec<(u64, Arc<Sector>)>,
}

impl Volatile {
    pub(super) fn new(bytes: u64) -> Self {
        Self {
            bytes,
            current: Content::default(),
            durable: Content::default(),
            cached: Vec::new(),
        }
    }

    pub(super) fn fill(&mut self, content: Content) {
        self.current = content.clone();
        self.durable = content;
        self.cached.clear();
    }

    /// Reads whole sectors from sector `first` on.
    pub(super) fn read(&self, first: u64, data: &mut [u8]) {
        for (number, part) in (first..).zip(data.chunks_exact_mut(SECTOR_SIZE)) {
            part.copy_from_slice(&self.current.sector(number));
        }
    }

    /// Writes whole sectors from sector `first` on; `is_durable` as with FUA.
    pub(super) fn write(&mut self, first: u64, data: &[u8], is_durable: bool) {
        for (number, part) in (first..).zip(data.as_chunks().0) {
            let sector = Arc::new(*part);
            self.current.0.insert(number, Arc::clone(&sector));
            if is_durable {
                self.durable.0.insert(number, sector);
                self.cached.retain(|(cached, _)| *cached != number);
            } else {
                self.cached.push((number, sector));
            }
        }
        if let Some(excess) = self.cached.len().checked_sub(MAX_CACHED_SECTORS) {
            self.durable.0.extend(self.cached.drain(..excess));
        }
    }

    /// Makes durable what was written before.
    pub(super) fn flush(&mut self) {
        self.durable.0.extend(self.cached.drain(..));
    }

    /// What is left after the power was cut: each sector that was not flushed is there `percent` times in a
    /// hundred.
    #[must_use]
    pub fn remains(&self, random: &mut Random, percent: u64) -> Content {
        let mut left = self.durable.clone();
        let cached = self.cached.iter().cloned();
        left.0.extend(cached.filter(|_| random.chance(percent)));
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sector(disk: &Content, number: u64) -> u8 {
        disk.sector(number)[0]
    }

    #[test]
    fn what_was_flushed_is_left_and_what_was_not_may_be() {
        let mut disk = Volatile::new(8 * SECTOR_BYTES);
        disk.write(0, &[1; SECTOR_SIZE * 2], false);
        disk.flush();
        disk.write(1, &[2; SECTOR_SIZE * 2], false);
        let mut found = [0; SECTOR_SIZE * 3];
        disk.read(0, &mut found);
        assert_eq!([found[0], found[512], found[1024]], [1, 2, 2]);

        let none = disk.remains(&mut Random::new(1), 0);
        assert_eq!([0, 1, 2].map(|number| sector(&none, number)), [1, 1, 0]);
        let all = disk.remains(&mut Random::new(1), 100);
        assert_eq!([0, 1, 2].map(|number| sector(&all, number)), [1, 2, 2]);
    }

    #[test]
    fn of_several_writes_to_a_sector_any_may_be_the_last_that_is_left() {
        let mut disk = Volatile::new(SECTOR_BYTES);
        for value in [1, 2, 3] {
            disk.write(0, &[value; SECTOR_SIZE], false);
        }
        let mut random = Random::new(1);
        let mut seen = [false; 4];
        for _ in 0..100 {
            let left = disk.remains(&mut random, 50);
            seen[usize::from(sector(&left, 0))] = true;
        }
        assert_eq!(seen, [true; 4]);
    }

    #[test]
    fn a_durable_write_leaves_no_older_one_in_the_cache() {
        let mut disk = Volatile::new(SECTOR_BYTES);
        disk.write(0, &[1; SECTOR_SIZE], false);
        disk.write(0, &[2; SECTOR_SIZE], true);
        let left = disk.remains(&mut Random::new(1), 100);
        assert_eq!(sector(&left, 0), 2);
    }

    #[test]
    fn a_file_holds_what_the_disk_does() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        let mut disk = Volatile::new(4 * SECTOR_BYTES);
        disk.write(2, &[7; SECTOR_SIZE], true);
        let content = disk.remains(&mut Random::new(1), 0);
        content.to_file(&path, disk.bytes).unwrap();
        let again = Content::of_file(&path).unwrap();
        assert_eq!([1, 2, 3].map(|number| sector(&again, number)), [0, 7, 0]);
    }
}
