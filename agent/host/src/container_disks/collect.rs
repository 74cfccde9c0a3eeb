//! Room for other disks: those that nobody has, the one longest unused first.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nix::sys::statvfs::statvfs;

use crate::layout::absent_is_none;

/// The kubelet's water marks: when so much of a file system is in use, disks go until no more than that is.
const HIGH_PERCENT: u64 = 85;
const LOW_PERCENT: u64 = 80;

/// A disk that is kept.
#[derive(Debug)]
struct Kept {
    path: PathBuf,
    used_at: SystemTime,
}

/// Notes that a disk is used. That it fails makes it go earlier than others, and no guest loses it.
pub(super) fn touch(file: &File, path: &Path) {
    if let Err(error) = file.set_modified(SystemTime::now()) {
        tracing::debug!(path = %path.display(), %error, "the time of use cannot be noted");
    }
}

/// Removes disks while their file system is too full. Returns how many went.
pub(super) fn collect(dir: &Path) -> io::Result<usize> {
    collect_by(dir, || used_percent(dir), (HIGH_PERCENT, LOW_PERCENT))
}

fn collect_by(
    dir: &Path,
    used: impl Fn() -> io::Result<u64>,
    (high, low): (u64, u64),
) -> io::Result<usize> {
    if used()? < high {
        return Ok(0);
    }
    let mut removed = 0;
    for kept in by_age(dir)? {
        if used()? <= low {
            break;
        }
        removed += usize::from(remove_unused(&kept.path)?);
    }
    Ok(removed)
}

/// The disks or layers of a directory, the one longest unused first.
fn by_age(dir: &Path) -> io::Result<Vec<Kept>> {
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

/// Removes a disk unless a guest has it: VMMs' descriptors hold its lock. Whoever opened it a moment ago keeps
/// the file, which then has no name.
fn remove_unused(path: &Path) -> io::Result<bool> {
    let Some(file) = absent_is_none(File::open(path))? else {
        return Ok(false);
    };
    match file.try_lock() {
        Ok(()) => absent_is_none(fs::remove_file(path)).map(|removed| removed.is_some()),
        Err(fs::TryLockError::WouldBlock) => Ok(false),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}

/// How much of a file system is in use, as `df` reckons it.
fn used_percent(dir: &Path) -> io::Result<u64> {
    let found = statvfs(dir)?;
    let used = found.blocks().saturating_sub(found.blocks_free());
    let all = used.saturating_add(found.blocks_available()).max(1);
    Ok(used.saturating_mul(100) / all)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

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
        let looks = Cell::new(0);
        let used = || {
            looks.set(looks.get() + 1);
            Ok(if there("newer.raw") { 90 } else { 80 })
        };
        assert_eq!(collect_by(dir.path(), used, (85, 80)).unwrap(), 2);
        assert!(!there("old.raw") && there("held.raw") && !there("newer.raw"));
        assert!(there("newest.raw") && there("draft.part"));
        // Below the high mark nothing goes.
        assert_eq!(collect_by(dir.path(), || Ok(84), (85, 80)).unwrap(), 0);
        assert!(looks.get() > 0);
        assert!(used_percent(dir.path()).unwrap() <= 100);
    }
}
