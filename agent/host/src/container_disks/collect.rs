//! Frees space for other disks by removing those that nobody has, the one longest unused first.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use nix::sys::statvfs::statvfs;

use crate::free_space::{FreeSpace, ImageStoreLimits};
use crate::layout::{absent_is_none, ensure_private_dir};

/// A pull that broke off goes on within this, if somebody still wants it: its layers stay so long.
const RESUMED_WITHIN: Duration = Duration::from_secs(600);

/// Held while somebody looks whether a disk is in use, which takes its lock for a moment, and while one is opened.
static TURN: Mutex<()> = Mutex::new(());

/// Waits for the turn.
pub(super) fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A disk that is kept.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) path: PathBuf,
    pub(super) used_at: SystemTime,
}

impl Kept {
    fn is_newer_than(&self, unused_for: Duration) -> bool {
        // A clock that was set back makes things look new for a while, and no more.
        self.used_at.elapsed().is_ok_and(|age| age < unused_for)
    }
}

/// Notes that a disk is used. That it fails makes it go earlier than others, and no guest loses it.
pub(super) fn touch(file: &File, path: &Path) {
    if let Err(error) = file.set_modified(SystemTime::now()) {
        tracing::debug!(path = %path.display(), %error, "the time of use cannot be noted");
    }
}

/// Removes disks that no guest has, and before them layers that no pull has, such as those of images that came to nothing.
#[derive(Debug, Clone)]
pub(super) struct Collector {
    pub(super) disks: PathBuf,
    pub(super) layers: PathBuf,
    pub(super) limits: ImageStoreLimits,
}

impl Collector {
    /// Keeps the water marks. Returns how many went.
    pub(super) fn collect(&self) -> io::Result<usize> {
        ensure_private_dir(&self.disks)?;
        let marks = (self.limits.high_percent, self.limits.low_percent);
        let mut removed = 0;
        for (dir, unused_for) in self.places() {
            removed += collect_by(dir, unused_for, || used_percent(&self.disks), marks)?;
        }
        Ok(removed)
    }

    /// Removes as much as it takes to write so many bytes, or nothing where all that could go is too little: others would
    /// fetch it again for nothing. Returns the free space afterwards.
    pub(super) fn reclaim_space(&self, wanted: u64) -> io::Result<FreeSpace> {
        ensure_private_dir(&self.disks)?;
        let space = || self.limits.free_space_in(&self.disks);
        let lacking = wanted.saturating_sub(space()?.available_bytes());
        if lacking == 0 {
            return space();
        }
        let mut unused = Vec::new();
        let mut bytes = 0_u64;
        for (dir, unused_for) in self.places() {
            for kept in by_age(dir)? {
                if !kept.is_newer_than(unused_for) && !is_in_use(&kept.path)? {
                    bytes = bytes.saturating_add(size_of(&kept.path)?);
                    unused.push(kept.path);
                }
            }
        }
        if bytes < lacking {
            return space();
        }
        for path in unused {
            if space()?.available_bytes() >= wanted {
                break;
            }
            if remove_unused(&path)? {
                tracing::info!(path = %path.display(), "removed to make room for an image");
            }
        }
        space()
    }

    /// Layers go before disks.
    fn places(&self) -> [(&Path, Duration); 2] {
        [
            (&self.layers, RESUMED_WITHIN),
            (&self.disks, Duration::ZERO),
        ]
    }
}

/// What a file takes of its file system.
pub(super) fn size_of(path: &Path) -> io::Result<u64> {
    let metadata = absent_is_none(path.metadata())?;
    Ok(metadata.map_or(0, |metadata| metadata.blocks().saturating_mul(512)))
}

fn collect_by(
    dir: &Path,
    unused_for: Duration,
    used: impl Fn() -> io::Result<u64>,
    (high, low): (u64, u64),
) -> io::Result<usize> {
    if used()? < high {
        return Ok(0);
    }
    let mut removed = 0;
    for kept in by_age(dir)? {
        if kept.is_newer_than(unused_for) || used()? <= low {
            break;
        }
        removed += usize::from(remove_unused(&kept.path)?);
    }
    Ok(removed)
}

/// The disks or layers of a directory, the one longest unused first.
pub(super) fn by_age(dir: &Path) -> io::Result<Vec<Kept>> {
    let mut found = Vec::new();
    let Some(entries) = absent_is_none(fs::read_dir(dir))? else {
        return Ok(found);
    };
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        // Layers have no extension, drafts of either have another.
        if path.extension().is_some_and(|extension| extension != "raw") {
            continue;
        }
        let Some(metadata) = absent_is_none(entry.metadata())? else {
            continue;
        };
        let used_at = metadata.modified()?;
        found.push(Kept { path, used_at });
    }
    found.sort_by_key(|kept| kept.used_at);
    Ok(found)
}

/// Removes the files of a directory that are not finished, which their extension says.
pub(super) fn remove_drafts(dir: &Path, extension: &str) -> io::Result<()> {
    let Some(entries) = absent_is_none(fs::read_dir(dir))? else {
        return Ok(());
    };
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == extension) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Removes a disk unless a guest has it: VMMs' descriptors hold its lock. Whoever opened it a moment ago keeps
/// the file, which then has no name.
pub(super) fn remove_unused(path: &Path) -> io::Result<bool> {
    let _turn = turn();
    let Some(file) = absent_is_none(File::open(path))? else {
        return Ok(false);
    };
    match file.try_lock() {
        Ok(()) => absent_is_none(fs::remove_file(path)).map(|removed| removed.is_some()),
        Err(fs::TryLockError::WouldBlock) => Ok(false),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

/// Whether a guest has a disk, or a pull a layer.
pub(super) fn is_in_use(path: &Path) -> io::Result<bool> {
    let _turn = turn();
    let Some(file) = absent_is_none(File::open(path))? else {
        return Ok(false);
    };
    match file.try_lock() {
        Ok(()) => Ok(false),
        Err(fs::TryLockError::WouldBlock) => Ok(true),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

/// How much of a file system is in use, as `df` computes it.
fn used_percent(dir: &Path) -> io::Result<u64> {
    let found = statvfs(dir)?;
    let used = found.blocks().saturating_sub(found.blocks_free());
    let all = used.saturating_add(found.blocks_available()).max(1);
    Ok(used.saturating_mul(100) / all)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn the_longest_unused_go_first_and_one_that_a_guest_has_stays() {
        let dir = tempfile::tempdir().unwrap();
        for (age, name) in [(30, "old"), (20, "held"), (10, "newer"), (0, "newest")] {
            let path = dir.path().join(format!("{name}.raw"));
            let file = File::create(path).unwrap();
            let at = SystemTime::now() - Duration::from_secs(age);
            file.set_modified(at).unwrap();
        }
        fs::write(dir.path().join("draft.part"), "").unwrap();
        let held = File::open(dir.path().join("held.raw")).unwrap();
        held.try_lock_shared().unwrap();
        let there = |name: &str| dir.path().join(name).exists();
        let checks = Cell::new(0);
        let used = || {
            checks.set(checks.get() + 1);
            Ok(if there("newer.raw") { 90 } else { 80 })
        };
        // What may go on is left alone, however full it is.
        let recent = Duration::from_secs(60);
        assert_eq!(
            collect_by(dir.path(), recent, || Ok(99), (85, 80)).unwrap(),
            0
        );
        let any = Duration::ZERO;
        assert_eq!(collect_by(dir.path(), any, used, (85, 80)).unwrap(), 2);
        assert!(!there("old.raw") && there("held.raw") && !there("newer.raw"));
        assert!(there("newest.raw") && there("draft.part"));
        // Below the high mark nothing goes.
        assert_eq!(collect_by(dir.path(), any, || Ok(84), (85, 80)).unwrap(), 0);
        assert!(checks.get() > 0);
        remove_drafts(dir.path(), "part").unwrap();
        assert!(there("newest.raw") && !there("draft.part"));
        remove_drafts(&dir.path().join("absent"), "part").unwrap();
        assert!(used_percent(dir.path()).unwrap() <= 100);
    }

    #[test]
    fn space_is_reclaimed_from_unused_files_and_only_where_that_is_enough() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let (disks, layers) = (dir.path().join("disks"), dir.path().join("layers"));
        fs::create_dir(&disks).unwrap();
        for (age, name) in [(30, "old"), (20, "held"), (10, "newest")] {
            let path = disks.join(format!("{name}.raw"));
            fs::write(&path, vec![1; 1 << 20]).unwrap();
            let file = File::options().write(true).open(path).unwrap();
            file.sync_all().unwrap();
            let at = SystemTime::now() - Duration::from_secs(age);
            file.set_modified(at).unwrap();
        }
        let held = File::open(disks.join("held.raw")).unwrap();
        held.try_lock_shared().unwrap();
        let there = |name: &str| disks.join(name).exists();
        let free = ImageStoreLimits::default()
            .free_space_in(dir.path())
            .unwrap();
        // Nothing is left to write.
        let collector = |reserve_bytes| Collector {
            disks: disks.clone(),
            layers: layers.clone(),
            limits: ImageStoreLimits {
                reserve_bytes: Some(reserve_bytes),
                ..ImageStoreLimits::default()
            },
        };
        let full = collector(free.free_bytes * 2);
        assert_eq!(full.reclaim_space(8 << 20).unwrap().available_bytes(), 0);
        assert!(there("old.raw") && there("newest.raw"));
        // Others write to this file system meanwhile, so that only what went is certain.
        full.reclaim_space(1 << 20).unwrap();
        assert!(!there("old.raw") && there("held.raw") && !there("newest.raw"));
        assert!(collector(0).reclaim_space(1).unwrap().available_bytes() > 0);
    }
}
