//! A file that gets its name only when it is whole and on disk.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::libc;
use nix::unistd::linkat;

use crate::layout::absent_is_none;

/// Only who made it may read it: a disk holds secrets.
const MODE: u32 = 0o600;

/// A new file beside the place that it is for. Dropped, it is gone.
#[derive(Debug)]
pub struct Draft {
    file: File,
    place: PathBuf,
    /// Its name until then, on file systems that have no nameless files.
    name: Option<PathBuf>,
}

impl Draft {
    /// A new, empty file for `place`.
    ///
    /// # Errors
    /// When the directory cannot be written to.
    pub fn new(place: &Path) -> io::Result<Self> {
        let mut options = File::options();
        options.read(true).write(true).mode(MODE);
        let nameless = options
            .clone()
            .custom_flags(libc::O_TMPFILE)
            .open(directory(place));
        let (file, name) = match nameless {
            Ok(file) => (file, None),
            // EISDIR and EOPNOTSUPP: this file system or kernel has none.
            Err(error)
                if [Some(libc::EISDIR), Some(libc::EOPNOTSUPP)].contains(&error.raw_os_error()) =>
            {
                let name = temporary(place);
                (options.create_new(true).open(&name)?, Some(name))
            }
            Err(error) => return Err(error),
        };
        Ok(Self {
            file,
            place: place.to_owned(),
            name,
        })
    }

    /// What is written to.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The file, which never gets a name.
    pub(crate) fn into_unnamed(self) -> io::Result<File> {
        // Its temporary name, where it needs one, goes with the draft.
        self.file.try_clone()
    }

    /// The same file for another place in the same directory.
    pub(crate) fn moved_to(mut self, place: &Path) -> Self {
        place.clone_into(&mut self.place);
        self
    }

    /// Syncs the file and gives it its name. Something that has the name already is replaced in one step
    /// if `replace` says so; otherwise it stays.
    ///
    /// # Errors
    /// `AlreadyExists`, and what the file system says.
    pub fn finish(mut self, replace: bool) -> io::Result<()> {
        self.file.sync_all()?;
        if replace {
            let name = match self.name.take() {
                Some(name) => name,
                None => {
                    let name = temporary(&self.place);
                    self.link(&name)?;
                    name
                }
            };
            if let Err(error) = fs::rename(&name, &self.place) {
                self.name = Some(name);
                return Err(error);
            }
        } else {
            self.link(&self.place)?;
        }
        File::open(directory(&self.place))?.sync_all()
    }

    /// Gives the file a name more, which nothing has.
    fn link(&self, name: &Path) -> io::Result<()> {
        if let Some(old) = &self.name {
            return fs::hard_link(old, name);
        }
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let flags = AtFlags::AT_SYMLINK_FOLLOW;
        Ok(linkat(AT_FDCWD, own.as_str(), AT_FDCWD, name, flags)?)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(name) = &self.name
            && let Err(error) = absent_is_none(fs::remove_file(name))
        {
            tracing::warn!(path = %name.display(), %error, "a half-written disk stays behind");
        }
    }
}

fn directory(place: &Path) -> &Path {
    match place.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

fn temporary(place: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(place.file_name().unwrap_or_default());
    name.push(format!(".{}.part", std::process::id()));
    directory(place).join(name)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn names(directory: &Path) -> Vec<OsString> {
        let entries = fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect()
    }

    /// Both kinds, whatever this machine's file system has.
    fn drafts(place: &Path) -> [Draft; 2] {
        let name = temporary(place);
        let file = File::create_new(&name).unwrap();
        let named = Draft {
            file,
            place: place.to_owned(),
            name: Some(name),
        };
        [named, Draft::new(place).unwrap()]
    }

    #[test]
    fn a_draft_has_its_name_only_when_it_is_finished() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("disk");
        for draft in drafts(&place) {
            draft.file().write_all(b"whole").unwrap();
            assert!(!place.exists());
            draft.finish(false).unwrap();
            assert_eq!(fs::read(&place).unwrap(), b"whole");
            assert_eq!(names(dir.path()), ["disk"]);
            fs::remove_file(&place).unwrap();
        }
    }

    #[test]
    fn a_draft_that_is_dropped_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        drop(drafts(&dir.path().join("disk")));
        assert!(names(dir.path()).is_empty());
    }

    #[test]
    fn what_has_the_name_stays_unless_it_is_to_be_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("disk");
        fs::write(&place, "old").unwrap();
        for draft in drafts(&place) {
            let error = draft.finish(false).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(fs::read(&place).unwrap(), b"old");
        }
        for draft in drafts(&place) {
            draft.finish(true).unwrap();
            assert_eq!(fs::read(&place).unwrap(), b"");
            fs::write(&place, "old").unwrap();
        }
        assert_eq!(names(dir.path()), ["disk"]);
    }
}
