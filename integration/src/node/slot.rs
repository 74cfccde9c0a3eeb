//! At most two nodes run at a time on one machine, whatever process they belong to.
//!
//! Each slot is a lock and a directory. A killed test leaves its directory, which the next holder
//! of the slot empties; so nothing piles up.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use nix::fcntl::Flock;

use crate::cache;

const SLOTS: u32 = 2;

#[derive(Debug)]
pub(super) struct Slot {
    directory: PathBuf,
    held: Arc<Flock<File>>,
}

impl Slot {
    pub(super) fn take() -> anyhow::Result<Self> {
        loop {
            for number in 0..SLOTS {
                if let Some(held) = cache::try_lock(&format!("node-{number}"))? {
                    let directory = cache::root().join(format!("nodes/{number}"));
                    if directory.exists() {
                        fs::remove_dir_all(&directory)?;
                    }
                    fs::create_dir_all(&directory)
                        .with_context(|| format!("{} cannot be made", directory.display()))?;
                    return Ok(Self {
                        directory,
                        held: Arc::new(held),
                    });
                }
            }
            // A wait for one of several file locks does not exist; flock(2) waits for one.
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// A directory more for the holder of this slot.
    pub(super) fn beside(&self, number: u8) -> anyhow::Result<Self> {
        let directory = self.directory.join(format!("beside-{number}"));
        fs::create_dir(&directory)
            .with_context(|| format!("{} cannot be made", directory.display()))?;
        Ok(Self {
            directory,
            held: Arc::clone(&self.held),
        })
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }
}
