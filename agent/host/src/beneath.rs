//! Host paths of callers: only below the directories that the configuration lists.
//!
//! Admission has compared the text. Here the kernel resolves the path beneath the directory
//! (`RESOLVE_BENEATH`), so that neither a symlink nor a rename race leads out of it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::libc;
use nix::sys::stat::Mode;

/// Why a path of a caller was not opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BeneathError {
    /// The path is in none of the directories.
    #[error("{path}: not below a directory of the setting {setting} ({allowed})")]
    NotAllowed {
        /// The path.
        path: String,
        /// The directories, joined.
        allowed: String,
        /// The setting that lists them.
        setting: String,
    },
    /// A symlink, mount or `..` leads out of the directory.
    #[error("{path}: leads out of {root}; {rule}")]
    Escapes {
        /// The path.
        path: String,
        /// The directory.
        root: String,
        /// What holds instead.
        rule: String,
    },
    /// It is not there.
    #[error("{path}: no such file")]
    NotFound {
        /// The path.
        path: String,
    },
    /// It is something else.
    #[error("{path}: not {wanted}")]
    WrongType {
        /// The path.
        path: String,
        /// What it has to be.
        wanted: &'static str,
    },
    /// The host could not open it.
    #[error("{path}: can not be opened")]
    Io {
        /// The path.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl BeneathError {
    /// Whether trying again can not help.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::NotAllowed { .. } | Self::Escapes { .. } | Self::WrongType { .. } => true,
            Self::NotFound { .. } | Self::Io { .. } => false,
        }
    }
}

/// What a path has to name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    RegularFile,
    RegularFileOrBlockDevice,
    Directory,
}

impl Wanted {
    fn describe(self) -> &'static str {
        match self {
            Self::RegularFile => "a regular file",
            Self::RegularFileOrBlockDevice => "a regular file or block device",
            Self::Directory => "a directory",
        }
    }

    fn accepts(self, kind: std::fs::FileType) -> bool {
        match self {
            Self::RegularFile => kind.is_file(),
            Self::RegularFileOrBlockDevice => kind.is_file() || kind.is_block_device(),
            Self::Directory => kind.is_dir(),
        }
    }
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    ReadWrite,
}

/// The directories below which callers may name paths.
#[derive(Debug, Clone)]
pub(crate) struct AllowedDirs {
    dirs: Vec<PathBuf>,
    setting: String,
}

impl AllowedDirs {
    /// `setting` is how messages call what lists them.
    pub(crate) fn new(dirs: &[PathBuf], setting: &str) -> Self {
        Self {
            dirs: dirs.to_vec(),
            setting: setting.to_owned(),
        }
    }

    /// Opens a file or directory below one of the directories.
    pub(crate) fn open(
        &self,
        path: &Path,
        wanted: Wanted,
        access: Access,
    ) -> Result<File, BeneathError> {
        let (root, relative) = self.split(path)?;
        let setting = &self.setting;
        let root = Root {
            descriptor: open_root(root)?,
            path: root,
            rule: format!("a path must stay below a directory of the setting {setting}"),
        };
        open_below(&root, relative, wanted, access)
    }

    /// Makes a sparse file of `bytes` in a directory that exists, for reading and writing. Name and size are
    /// on disk before anybody writes to it.
    pub(crate) fn create(&self, path: &Path, bytes: u64) -> Result<File, BeneathError> {
        let (root, relative) = self.split(path)?;
        let name = relative
            .file_name()
            .ok_or_else(|| wrong_type(path, Wanted::RegularFile))?;
        let parent = path.parent().unwrap_or(root);
        let parent = self.open(parent, Wanted::Directory, Access::Read)?;
        let flags =
            OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = openat(&parent, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)
            .map(File::from)
            .map_err(|error| io_error(path, error.into()))?;
        let made = file
            .set_len(bytes)
            .and_then(|()| file.sync_all())
            .and_then(|()| sync_dir(&parent));
        made.map_err(|error| io_error(path, error))?;
        Ok(file)
    }

    /// The allowed directory of a path, and the rest of the path.
    fn split<'a>(&'a self, path: &'a Path) -> Result<(&'a Path, &'a Path), BeneathError> {
        let plain = path.is_absolute()
            && path
                .components()
                .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        self.dirs
            .iter()
            .filter(|_| plain)
            .find_map(|root| Some((root.as_path(), path.strip_prefix(root).ok()?)))
            .ok_or_else(|| BeneathError::NotAllowed {
                path: text(path),
                setting: self.setting.clone(),
                allowed: self
                    .dirs
                    .iter()
                    .map(|dir| text(dir))
                    .collect::<Vec<_>>()
                    .join(", "),
            })
    }
}

/// A directory that was opened below an allowed one: files within it, and not out of it.
#[derive(Debug)]
pub(crate) struct BeneathDir {
    dir: File,
    path: PathBuf,
}

impl BeneathDir {
    pub(crate) fn new(dir: File, path: &Path) -> Self {
        Self {
            dir,
            path: path.to_owned(),
        }
    }

    /// Opens a regular file within the directory for reading.
    pub(crate) fn open(&self, relative: &Path) -> Result<File, BeneathError> {
        let root = Root {
            descriptor: &self.dir,
            path: &self.path,
            rule: "a path of an image must stay within it".to_owned(),
        };
        open_below(&root, relative, Wanted::RegularFile, Access::Read)
    }
}

fn open_root(root: &Path) -> Result<OwnedFd, BeneathError> {
    std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
        .open(root)
        .map(OwnedFd::from)
        .map_err(|error| io_error(root, error))
}

/// The directory that a path must not leave.
struct Root<'a, D> {
    descriptor: D,
    path: &'a Path,
    /// What is said when it does.
    rule: String,
}

fn open_below<D: AsFd>(
    root: &Root<'_, D>,
    relative: &Path,
    wanted: Wanted,
    access: Access,
) -> Result<File, BeneathError> {
    let path = root.path.join(relative);
    let relative = if relative.as_os_str().is_empty() {
        Path::new(".")
    } else {
        relative
    };
    // O_PATH first: opening a FIFO would wait and opening a device could do something.
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let found = openat2(&root.descriptor, relative, how).map_err(|error| match error {
        Errno::EXDEV | Errno::ELOOP => BeneathError::Escapes {
            path: text(&path),
            root: text(root.path),
            rule: root.rule.clone(),
        },
        Errno::ENOENT | Errno::ENOTDIR => BeneathError::NotFound { path: text(&path) },
        error => io_error(&path, error.into()),
    })?;
    let found = File::from(found);
    let kind = found
        .metadata()
        .map_err(|error| io_error(&path, error))?
        .file_type();
    if !wanted.accepts(kind) {
        return Err(wrong_type(&path, wanted));
    }
    if wanted == Wanted::Directory {
        return Ok(found);
    }
    std::fs::OpenOptions::new()
        .read(true)
        .write(access == Access::ReadWrite)
        .open(format!("/proc/self/fd/{}", found.as_raw_fd()))
        .map_err(|error| io_error(&path, error))
}

/// Syncs a directory that was opened by its path alone (`O_PATH`), which fsync(2) refuses.
fn sync_dir(dir: &File) -> io::Result<()> {
    File::open(format!("/proc/self/fd/{}", dir.as_raw_fd()))?.sync_all()
}

fn wrong_type(path: &Path, wanted: Wanted) -> BeneathError {
    BeneathError::WrongType {
        path: text(path),
        wanted: wanted.describe(),
    }
}

fn io_error(path: &Path, source: io::Error) -> BeneathError {
    BeneathError::Io {
        path: text(path),
        source,
    }
}

/// Paths come from callers: what is not text, and control characters, are made visible.
fn text(path: &Path) -> String {
    String::from_utf8_lossy(path.as_os_str().as_bytes())
        .chars()
        .flat_map(|char| {
            if char.is_control() {
                char.escape_default().collect::<Vec<_>>()
            } else {
                vec![char]
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use super::*;

    struct Fixture {
        dir: tempfile::TempDir,
        allowed: AllowedDirs,
    }

    impl Fixture {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let root = dir.path().join("images");
            std::fs::create_dir_all(root.join("sub")).unwrap();
            std::fs::write(root.join("sub/file"), "inside").unwrap();
            std::fs::write(dir.path().join("secret"), "outside").unwrap();
            let allowed = AllowedDirs::new(&[root], "allowed_dirs");
            Self { dir, allowed }
        }

        fn open(&self, relative: &str) -> Result<File, BeneathError> {
            let path = self.dir.path().join("images").join(relative);
            self.allowed.open(&path, Wanted::RegularFile, Access::Read)
        }
    }

    #[test]
    fn a_file_below_an_allowed_directory_is_opened() {
        let fixture = Fixture::new();
        fixture.open("sub/file").unwrap();
        symlink("sub/file", fixture.dir.path().join("images/link")).unwrap();
        fixture.open("link").unwrap();
    }

    #[test]
    fn a_symlink_out_of_the_directory_is_refused_and_the_setting_named() {
        let fixture = Fixture::new();
        let images = fixture.dir.path().join("images");
        symlink("../secret", images.join("relative")).unwrap();
        symlink(fixture.dir.path().join("secret"), images.join("absolute")).unwrap();
        symlink("../..", images.join("up")).unwrap();
        symlink("/proc/self/cwd", images.join("magic")).unwrap();
        for name in ["relative", "absolute", "up/etc/passwd", "magic/Cargo.toml"] {
            let error = fixture.open(name).unwrap_err();
            assert!(
                matches!(error, BeneathError::Escapes { .. }),
                "{name}: {error:?}"
            );
            assert!(error.to_string().contains("allowed_dirs"), "{error}");
        }
    }

    #[test]
    fn a_path_outside_is_refused_and_the_setting_named() {
        let fixture = Fixture::new();
        let images = fixture.dir.path().join("images");
        for path in [
            PathBuf::from("/etc/passwd"),
            PathBuf::from("relative"),
            images.join("../secret"),
            fixture.dir.path().join("images-of-others/file"),
        ] {
            let error = fixture
                .allowed
                .open(&path, Wanted::RegularFile, Access::Read)
                .unwrap_err();
            assert!(
                matches!(error, BeneathError::NotAllowed { .. }),
                "{error:?}"
            );
            assert!(error.to_string().contains("allowed_dirs"), "{error}");
        }
    }

    #[test]
    fn a_fifo_or_directory_is_not_taken_for_a_file() {
        let fixture = Fixture::new();
        let fifo = fixture.dir.path().join("images/fifo");
        nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        for name in ["fifo", "sub"] {
            let error = fixture.open(name).unwrap_err();
            assert!(matches!(error, BeneathError::WrongType { .. }), "{error:?}");
        }
    }

    #[test]
    fn a_new_file_is_sparse_and_never_replaces_another() {
        let fixture = Fixture::new();
        let path = fixture.dir.path().join("images/sub/new.img");
        let mut file = fixture.allowed.create(&path, 1 << 30).unwrap();
        file.write_all(b"x").unwrap();
        let meta = std::fs::metadata(&path).unwrap();
        assert_eq!(meta.len(), 1 << 30);
        assert!(std::os::unix::fs::MetadataExt::blocks(&meta) < 1000);
        assert!(fixture.allowed.create(&path, 1).is_err());
        let outside = fixture.dir.path().join("new.img");
        assert!(fixture.allowed.create(&outside, 1).is_err());
    }
}
