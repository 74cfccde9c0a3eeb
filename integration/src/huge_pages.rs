//! The host's pools of huge pages, as far as a test may enlarge them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Huge pages added to a pool of the host, for one test at a time. Dropping it makes the pool as
/// small as it was.
#[derive(Debug)]
pub struct HugePages {
    pool: PathBuf,
    before: u64,
    /// Whoever else wants to change the pool waits for it.
    _lock: File,
}

impl HugePages {
    /// Adds `count` pages of `page_kib` KiB to their pool.
    ///
    /// # Errors
    /// Why a test cannot have them.
    pub fn add(page_kib: u64, count: u64) -> Result<Self, String> {
        let pool = PathBuf::from(format!("/sys/kernel/mm/hugepages/hugepages-{page_kib}kB"));
        let without = |error| format!("no huge pages of {page_kib} KiB can be had: {error}");
        let lock = File::open(pool.join("nr_hugepages")).map_err(without)?;
        lock.lock().map_err(without)?;
        let before = number(&pool, "nr_hugepages").map_err(without)?;
        let pages = Self {
            pool,
            before,
            _lock: lock,
        };
        let wanted = before + count;
        pages.resize(wanted).map_err(without)?;
        let found = number(&pages.pool, "nr_hugepages").map_err(without)?;
        if found < wanted {
            let missing = wanted - found;
            return Err(format!(
                "the host has no room for {missing} more huge pages of {page_kib} KiB"
            ));
        }
        Ok(pages)
    }

    /// Pages that nobody has, nor has reserved.
    #[must_use]
    pub fn free(&self) -> u64 {
        let read = |name| number(&self.pool, name).unwrap_or(0);
        read("free_hugepages").saturating_sub(read("resv_hugepages"))
    }

    fn resize(&self, count: u64) -> std::io::Result<()> {
        fs::write(self.pool.join("nr_hugepages"), count.to_string())
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if let Err(error) = self.resize(self.before) {
            eprintln!("the pool of huge pages stays enlarged: {error}");
        }
    }
}

fn number(pool: &Path, name: &str) -> std::io::Result<u64> {
    let text = fs::read_to_string(pool.join(name))?;
    text.trim().parse().map_err(std::io::Error::other)
}
