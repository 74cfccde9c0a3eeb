//! Free space on the file system of images. Guests' overlays and disks and the ledger are on it, too: if images took all of it, guests
//! of others would get errors or be paused, and the agent could note nothing.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use nix::sys::statvfs::{Statvfs, fstatvfs, statvfs};

use crate::work::on_thread;

/// A helper checks the free space again after it has written so much: others write meanwhile.
const CHECK_EVERY_BYTES: u64 = 1 << 20;

/// The reserve of a large file system, in percent, and that of one of average size.
const RESERVE_PERCENT: u64 = 5;
const RESERVE_BYTES: u64 = 1 << 30;
/// A small one keeps no more than this free.
const MOST_RESERVE_PERCENT: u64 = 10;

/// How full images may make their file system: `[images]` of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageStoreLimits {
    /// When so much of the file system is in use, disks that no guest has are removed.
    pub high_percent: u64,
    /// They are removed until no more than this is in use.
    pub low_percent: u64,
    /// What pulls and imports leave free. `None`: the larger of 5 % and 1 GiB, but at most a tenth of the file system.
    pub reserve_bytes: Option<u64>,
}

impl Default for ImageStoreLimits {
    /// The kubelet's water marks.
    fn default() -> Self {
        Self {
            high_percent: 85,
            low_percent: 80,
            reserve_bytes: None,
        }
    }
}

impl ImageStoreLimits {
    /// What is left free of a file system of this size.
    fn reserve_of(self, capacity_bytes: u64) -> u64 {
        let percent = |percent| capacity_bytes / 100 * percent;
        let least = RESERVE_BYTES.min(percent(MOST_RESERVE_PERCENT));
        self.reserve_bytes
            .unwrap_or_else(|| percent(RESERVE_PERCENT).max(least))
    }

    /// The free space on the file system of a directory.
    pub(crate) fn free_space_in(self, dir: &Path) -> io::Result<FreeSpace> {
        let found = statvfs(dir)?;
        let capacity = found.blocks().saturating_mul(found.fragment_size());
        Ok(FreeSpace {
            free_bytes: free(&found),
            reserve_bytes: self.reserve_of(capacity),
        })
    }
}

/// What is free of a file system, and what has to stay so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FreeSpace {
    pub(crate) free_bytes: u64,
    pub(crate) reserve_bytes: u64,
}

impl FreeSpace {
    /// What may be written.
    pub(crate) fn available_bytes(self) -> u64 {
        self.free_bytes.saturating_sub(self.reserve_bytes)
    }

    /// Whether so much may be written; the error names the object that does not fit.
    pub(crate) fn check(self, what: &str, wanted: u64, dir: &Path) -> io::Result<()> {
        if wanted <= self.available_bytes() {
            return Ok(());
        }
        let text = format!(
            "{what}: {} MiB wanted, {} MiB free in {}, of which {} MiB are kept for guests: {WAY_OUT}",
            wanted.div_ceil(1 << 20),
            self.free_bytes >> 20,
            dir.display(),
            self.reserve_bytes >> 20,
        );
        Err(io::Error::new(io::ErrorKind::StorageFull, text))
    }
}

/// Frees space for images by removing what no guest uses.
#[derive(Clone)]
pub(crate) struct SpaceReclaimer {
    pub(crate) limits: ImageStoreLimits,
    reclaim: Arc<Reclaim>,
}

type Reclaim = dyn Fn(u64) -> io::Result<FreeSpace> + Send + Sync;

impl SpaceReclaimer {
    pub(crate) fn new(
        limits: ImageStoreLimits,
        reclaim: impl Fn(u64) -> io::Result<FreeSpace> + Send + Sync + 'static,
    ) -> Self {
        let reclaim = Arc::new(reclaim);
        Self { limits, reclaim }
    }

    /// Frees so many bytes where that is possible. Returns the free space afterwards.
    pub(crate) async fn reclaim(&self, wanted: u64) -> io::Result<FreeSpace> {
        let reclaim = Arc::clone(&self.reclaim);
        on_thread(move || reclaim(wanted)).await?
    }
}

impl fmt::Debug for SpaceReclaimer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("SpaceReclaimer")
            .field(&self.limits)
            .finish()
    }
}

const WAY_OUT: &str = "free space, or remove images that no guest has (kvmctl image prune), or lower images.reserve_bytes";

/// What a helper may still write to a file before it checks the free space again.
#[derive(Debug)]
pub(crate) struct ReserveGuard {
    reserve_bytes: u64,
    unchecked_bytes: u64,
}

impl ReserveGuard {
    /// Leaves so much free; 0: the file system may be filled.
    pub(crate) fn new(reserve_bytes: u64) -> Self {
        Self {
            reserve_bytes,
            unchecked_bytes: 0,
        }
    }

    /// Counts what is about to be written to `file`, and refuses it when too little would be left.
    pub(crate) fn before_write(&mut self, file: &File, bytes: u64) -> io::Result<()> {
        if self.reserve_bytes == 0 {
            return Ok(());
        }
        if self.unchecked_bytes < bytes {
            let space = FreeSpace {
                free_bytes: free(&fstatvfs(file.as_fd())?),
                reserve_bytes: self.reserve_bytes,
            };
            if space.available_bytes() < bytes {
                let text = format!(
                    "no space left on the file system of images: {} MiB are free and {} MiB are kept for guests: {WAY_OUT}",
                    space.free_bytes >> 20,
                    space.reserve_bytes >> 20,
                );
                return Err(io::Error::new(io::ErrorKind::StorageFull, text));
            }
            self.unchecked_bytes = space.available_bytes().min(CHECK_EVERY_BYTES).max(bytes);
        }
        self.unchecked_bytes -= bytes;
        Ok(())
    }
}

fn free(found: &Statvfs) -> u64 {
    found
        .blocks_available()
        .saturating_mul(found.fragment_size())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_reserve_is_a_gibibyte_or_a_twentieth_and_less_on_small_file_systems() {
        let limits = ImageStoreLimits::default();
        let close = |capacity: u64, wanted: u64| {
            let reserve = limits.reserve_of(capacity);
            assert!(wanted.abs_diff(reserve) <= 100, "{capacity}: {reserve}");
        };
        close(1000 * GIB, 50 * GIB);
        close(20 * GIB, GIB);
        close(10 * GIB, GIB);
        close(5 * GIB, GIB / 2);
        close(640 << 20, 64 << 20);
        let set = ImageStoreLimits {
            reserve_bytes: Some(3),
            ..limits
        };
        assert_eq!(set.reserve_of(GIB), 3);
    }

    #[test]
    fn what_is_kept_for_guests_is_not_given_to_images() {
        let space = FreeSpace {
            free_bytes: 3 * GIB,
            reserve_bytes: GIB,
        };
        space.check("x", 2 * GIB, Path::new("/images")).unwrap();
        let refused = space.check("x", 2 * GIB + 1, Path::new("/images"));
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        let words =
            "x: 2049 MiB wanted, 3072 MiB free in /images, of which 1024 MiB are kept for guests";
        assert!(refused.to_string().starts_with(words), "{refused}");
    }

    #[test]
    fn a_helper_stops_before_it_writes_what_is_kept_for_guests() {
        let file = tempfile::tempfile().unwrap();
        ReserveGuard::new(0).before_write(&file, u64::MAX).unwrap();
        let mut guard = ReserveGuard::new(1);
        guard.before_write(&file, 4096).unwrap();
        assert_eq!(guard.unchecked_bytes, CHECK_EVERY_BYTES - 4096);
        let refused = ReserveGuard::new(u64::MAX).before_write(&file, 1);
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
