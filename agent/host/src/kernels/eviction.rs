//! Files of a cache: their use is noted, and the least recently used ones go.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

use crate::layout::absent_is_none;

/// Files that are being written have this at the start of their name.
pub(super) const TEMPORARY: &str = ".tmp-";

/// Notes that a file was used now. A file system that does not take it makes only the order of
/// eviction worse.
pub(super) fn touch(file: &File, path: &Path) {
    if let Err(error) = file.set_modified(SystemTime::now()) {
        tracing::debug!(path = %path.display(), %error, "the use of a cached file is not noted");
    }
}

/// Removes the least recently used files until the rest fits; `keep` stays.
pub(super) fn evict(dir: &Path, keep: &Path, max_bytes: u64) -> io::Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        // Another request may have removed it, or may still be writing it.
        let Some(meta) = absent_is_none(entry.metadata())? else {
            continue;
        };
        let being_written = entry.file_name().to_string_lossy().starts_with(TEMPORARY);
        if meta.is_file() && !being_written {
            files.push((meta.modified()?, meta.blocks() * 512, entry.path()));
        }
    }
    files.sort();
    let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
    for (_, bytes, path) in files {
        if total <= max_bytes {
            break;
        }
        if path != keep {
            absent_is_none(fs::remove_file(&path))?;
            total = total.saturating_sub(bytes);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;

    fn file(dir: &Path, name: &str, age: u64) -> PathBuf {
        let path = dir.join(name);
        fs::write(&path, vec![1; 4096]).unwrap();
        let used = SystemTime::now() - Duration::from_secs(age);
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(used)
            .unwrap();
        path
    }

    #[test]
    fn the_least_recently_used_kernel_goes_first_and_the_new_one_stays() {
        let dir = tempfile::tempdir().unwrap();
        let old = file(dir.path(), "old", 300);
        let recent = file(dir.path(), "recent", 10);
        let new = file(dir.path(), "new", 1000);
        let writing = file(dir.path(), ".tmp-x", 2000);
        evict(dir.path(), &new, 3 * 4096).unwrap();
        assert!(old.exists());
        evict(dir.path(), &new, 2 * 4096).unwrap();
        assert!(!old.exists() && recent.exists() && new.exists() && writing.exists());
        evict(dir.path(), &new, 0).unwrap();
        assert!(!recent.exists() && new.exists() && writing.exists());
    }
}
