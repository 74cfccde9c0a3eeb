//! Reads and writes of the first disk, past the page cache.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use integration::raw_io::{Access, RawIo};
use nix::libc::O_DIRECT;

use crate::figure::figure;

const DISK: &str = "/dev/vda";
const LARGE: u32 = 128 << 10;
const SMALL: u32 = 4 << 10;

/// Name, bytes of a block, what is done, and how many at a time.
const TESTS: [(&str, u32, Access, usize); 8] = [
    ("seq_read_depth_1", LARGE, Access::SequentialRead, 1),
    ("seq_read_depth_32", LARGE, Access::SequentialRead, 32),
    ("seq_write_depth_1", LARGE, Access::SequentialWrite, 1),
    ("seq_write_depth_32", LARGE, Access::SequentialWrite, 32),
    ("random_read_depth_1", SMALL, Access::RandomRead, 1),
    ("random_read_depth_32", SMALL, Access::RandomRead, 32),
    ("random_write_depth_1", SMALL, Access::RandomWrite, 1),
    ("random_write_depth_32", SMALL, Access::RandomWrite, 32),
];

/// Prints MiB/s of large blocks in sequence and operations a second of small ones at random.
pub fn run(time: Duration) -> anyhow::Result<()> {
    let disk = Arc::new(open().context(DISK)?);
    for (name, block_bytes, access, depth) in TESTS {
        let mut io = RawIo::new(Arc::clone(&disk), block_bytes, depth)?;
        // Rings and memory are new: the first round is nobody's.
        io.run(access, Duration::from_millis(1))?;
        let started = Instant::now();
        let count = io.run(access, time)?;
        let per_second = f64::from(count) / started.elapsed().as_secs_f64();
        let mib = f64::from(block_bytes) / f64::from(1 << 20);
        let is_large = block_bytes == LARGE;
        figure(
            name,
            if is_large {
                per_second * mib
            } else {
                per_second
            },
        );
    }
    Ok(())
}

fn open() -> std::io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(O_DIRECT)
        .open(DISK)
}
