//! Load on a file or block device: blocks read or written through io_uring, as many at a time as
//! wanted.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use vmm_memory::{Layout, create_ram};
use vmm_sys::io_uring::{GuestRing, Range, Transfer};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

/// A ring gives up a wait after this long and waits again.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is done to blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reads, one block after the other.
    SequentialRead,
    /// Writes, one block after the other.
    SequentialWrite,
    /// Reads anywhere.
    RandomRead,
    /// Writes anywhere.
    RandomWrite,
}

impl Access {
    fn is_random(self) -> bool {
        matches!(self, Self::RandomRead | Self::RandomWrite)
    }

    fn transfer(self) -> Transfer {
        match self {
            Self::SequentialRead | Self::RandomRead => Transfer::Read,
            Self::SequentialWrite | Self::RandomWrite => Transfer::Write,
        }
    }
}

/// A ring on a file, and memory for its blocks.
pub struct RawIo {
    ring: GuestRing,
    depth: usize,
    block_bytes: u32,
    /// The file holds so many.
    blocks: u64,
    next: u64,
    random: u64,
}

impl RawIo {
    /// Up to `depth` blocks of `block_bytes` bytes at a time.
    ///
    /// # Errors
    /// When the kernel gives no ring or memory, or the file is smaller than a block.
    pub fn new(file: Arc<File>, block_bytes: u32, depth: usize) -> anyhow::Result<Self> {
        let bytes = (&*file).seek(SeekFrom::End(0))?;
        let blocks = bytes / u64::from(block_bytes);
        anyhow::ensure!(blocks > 0, "a file of {bytes} bytes");
        let memory = u64::from(block_bytes) * u64::try_from(depth)?;
        let ram = create_ram(&Layout::new(memory.next_multiple_of(1 << 20), 40)?)?;
        // The ring wants one to write to; what has ended is seen in the ring.
        let event = EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK)?;
        Ok(Self {
            ring: GuestRing::new(depth, Arc::new(ram), (&*file, None::<&File>), &event)?,
            depth,
            block_bytes,
            blocks,
            next: 0,
            // Any seed but zero; the same blocks each time.
            random: 0x2545_f491_4f6c_dd1d,
        })
    }

    /// Keeps blocks in flight for `time`, then waits for the last; how many there were.
    ///
    /// # Errors
    /// When one fails or is cut short.
    pub fn run(&mut self, access: Access, time: Duration) -> anyhow::Result<u32> {
        let deadline = Instant::now() + time;
        let mut done = 0;
        for slot in 0..self.depth {
            self.begin(slot, access)?;
        }
        while self.ring.in_flight() > 0 {
            self.ring.wait(PATIENCE)?;
            let is_over = Instant::now() >= deadline;
            while let Some(completion) = self.ring.next_completion() {
                let bytes = completion.result.context("a block")?;
                anyhow::ensure!(bytes == self.block_bytes, "a block of {bytes} bytes");
                done += 1;
                if !is_over {
                    self.begin(completion.slot, access)?;
                }
            }
        }
        Ok(done)
    }

    fn begin(&mut self, slot: usize, access: Access) -> anyhow::Result<()> {
        let block = if access.is_random() {
            self.draw()
        } else {
            self.next += 1;
            self.next
        } % self.blocks;
        let range = Range {
            address: u64::from(self.block_bytes) * u64::try_from(slot)?,
            bytes: self.block_bytes,
        };
        let offset = block * u64::from(self.block_bytes);
        let ranges = std::iter::once(range);
        Ok(self
            .ring
            .transfer(slot, access.transfer(), ranges, offset)?)
    }

    /// Marsaglia's xorshift64.
    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}
