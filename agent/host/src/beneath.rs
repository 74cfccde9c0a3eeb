//! Host paths of callers: only what their namespace may use.
//!
//! Admission has judged the text, and it is judged again here, because the configuration may have
//! changed. Then the kernel resolves the path beneath the directory that the namespace has
//! (`RESOLVE_BENEATH`), so that neither a symlink nor a rename race leads out of it.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use agent_domain::{PathRecord, PathRefusal, PathRules, PathUse};
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::libc;
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

/// Why a path of a caller was not opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BeneathError {
    /// The namespace may not use it.
    #[error("{path}: {why} ({way_out})")]
    NotAllowed {
        path: String,
        /// What is wrong, and for which namespace.
        why: String,
        /// What an administrator can do about it.
        way_out: String,
    },
    /// A symlink, mount or `..` leads out of the directory.
    #[error("{path}: leads out of {root}; {rule}")]
    Escapes {
        path: String,
        /// The directory.
        root: String,
        /// What holds instead.
        rule: String,
    },
    /// It is not there.
    #[error("{path}: no such file")]
    NotFound { path: String },
    /// It is something else.
    #[error("{path}: not {wanted}")]
    WrongType {
        path: String,
        /// What it has to be.
        wanted: &'static str,
    },
    /// The host could not open it.
    #[error("{path}: cannot be opened")]
    Io {
        path: String,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
}

impl BeneathError {
    /// Whether trying again cannot help.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Escapes { .. } | Self::WrongType { .. } => true,
            // The operator may grant it by a reload of the configuration.
            Self::NotAllowed { .. } | Self::NotFound { .. } | Self::Io { .. } => false,
        }
    }
}

/// What a path has to name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
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
enum Access {
    Read,
    ReadWrite,
}

/// The paths that one namespace may use.
#[derive(Debug, Clone)]
pub(crate) struct AllowedPaths {
    rules: PathRules,
    namespace: String,
}

impl AllowedPaths {
    pub(crate) fn new(rules: PathRules, namespace: &str) -> Self {
        Self {
            rules,
            namespace: namespace.to_owned(),
        }
    }

    /// Opens a disk image or block device.
    pub(crate) fn open_disk(&self, path: &Path, read_only: bool) -> Result<File, BeneathError> {
        let root = self.root_of(path, PathUse::Disk { read_only })?;
        let access = if read_only {
            Access::Read
        } else {
            Access::ReadWrite
        };
        let wanted = Wanted::RegularFileOrBlockDevice;
        let opened = root.opened()?;
        let file = open_below(&opened, root.relative(path)?, wanted, access)?;
        self.check_place(&opened.place_of(&file)?, path)?;
        Ok(file)
    }

    /// Opens a file that holds an image or a part of one, such as an archive, for reading.
    pub(crate) fn open_image_file(&self, path: &Path) -> Result<File, BeneathError> {
        let root = self.root_of(path, PathUse::Image)?;
        let opened = root.opened()?;
        let relative = root.relative(path)?;
        let file = open_below(&opened, relative, Wanted::RegularFile, Access::Read)?;
        self.check_place(&opened.place_of(&file)?, path)?;
        Ok(file)
    }

    /// Opens a directory that holds kernels and initrds, a disk, or an image layout.
    pub(crate) fn open_image_dir(&self, path: &Path) -> Result<BeneathDir, BeneathError> {
        let root = self.root_of(path, PathUse::Image)?;
        let opened = root.opened()?;
        let relative = root.relative(path)?;
        let dir = open_below(&opened, relative, Wanted::Directory, Access::Read)?;
        Ok(BeneathDir {
            place: opened.place_of(&dir)?,
            dir,
            path: path.to_owned(),
            allowed: self.clone(),
        })
    }

    /// Makes a sparse file of `bytes` for reading and writing, in a directory that exists or is the
    /// namespace's own. Name and size are on disk before anybody writes to it.
    pub(crate) fn create_disk(&self, path: &Path, bytes: u64) -> Result<File, BeneathError> {
        let root = self.root_of(path, PathUse::Disk { read_only: false })?;
        let relative = root.relative(path)?;
        let name = relative
            .file_name()
            .ok_or_else(|| wrong_type(path, Wanted::RegularFile))?;
        if root.path.file_name() == Some(OsStr::new(&self.namespace)) {
            make_own_dir(&root.path)?;
        }
        let parent = relative.parent().unwrap_or(Path::new(""));
        let opened = root.opened()?;
        let parent = open_below(&opened, parent, Wanted::Directory, Access::Read)?;
        self.check_place(&opened.place_of(&parent)?.join(name), path)?;
        let flags =
            OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = openat(&parent, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)
            .map(File::from)
            .map_err(|error| io_error(path, error.into()))?;
        let made = file
            .set_len(bytes)
            .and_then(|()| file.sync_all())
            .and_then(|()| sync_dir(&parent));
        if let Err(error) = made {
            // What stayed would be taken for a disk that is on disk with its size, by whoever tries again.
            if let Err(error) = unlinkat(&parent, name, UnlinkatFlags::NoRemoveDir) {
                tracing::warn!(path = %path.display(), %error, "a disk that could not be made stays behind");
            }
            return Err(io_error(path, error));
        }
        Ok(file)
    }

    /// The directory beneath which the namespace has the path.
    fn root_of(&self, path: &Path, wanted: PathUse) -> Result<RootPath, BeneathError> {
        let plain = path.is_absolute()
            && path
                .components()
                .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        let allowed = if plain {
            self.rules.judge(&self.namespace, path, wanted)
        } else {
            Err(PathRefusal::NotGranted {
                allowed: Vec::new(),
            })
        };
        match allowed {
            Ok(root) => Ok(RootPath {
                rule: format!(
                    "a path of namespace {:?} must stay below what it is granted ({})",
                    self.namespace, self.rules.setting
                ),
                path: root,
            }),
            Err(refusal) => Err(self.not_allowed(path, &refusal)),
        }
    }

    /// All disks that are remembered as one namespace's, the oldest first.
    pub(crate) fn exclusive_disks(&self) -> Vec<(&Path, &PathRecord)> {
        self.rules.exclusive_disks()
    }

    /// Disks of other namespaces that go before this path, should it lead to the same device.
    pub(crate) fn older_disks_of_others<'a>(
        &'a self,
        path: &Path,
    ) -> impl Iterator<Item = &'a Path> {
        self.rules.older_disks_of_others(&self.namespace, path)
    }

    /// The refusal of a path that leads to such a disk.
    pub(crate) fn other_namespace_error(&self, path: &Path) -> BeneathError {
        self.not_allowed(path, &PathRefusal::OwnedByOtherNamespace)
    }

    /// Symlinks within a directory may lead from one disk to another, and to the directory of another namespace.
    fn check_place(&self, place: &Path, path: &Path) -> Result<(), BeneathError> {
        if self
            .rules
            .belongs_to_other_namespace(&self.namespace, place)
        {
            return Err(self.other_namespace_error(path));
        }
        Ok(())
    }

    fn not_allowed(&self, path: &Path, refusal: &PathRefusal) -> BeneathError {
        BeneathError::NotAllowed {
            path: text(path),
            why: refusal.message(&self.namespace),
            way_out: refusal.way_out(path, &self.rules.setting),
        }
    }
}

/// A directory that a namespace has.
struct RootPath {
    path: PathBuf,
    rule: String,
}

impl RootPath {
    fn opened(&self) -> Result<Root<'_, OwnedFd>, BeneathError> {
        Ok(Root {
            descriptor: open_root(&self.path)?,
            path: &self.path,
            rule: self.rule.clone(),
        })
    }

    fn relative<'a>(&self, path: &'a Path) -> Result<&'a Path, BeneathError> {
        path.strip_prefix(&self.path)
            .map_err(|_| wrong_type(path, Wanted::Directory))
    }
}

/// A namespace's directory comes into being with the first disk that is made in it.
fn make_own_dir(path: &Path) -> Result<(), BeneathError> {
    let made = std::fs::DirBuilder::new().mode(0o755).create(path);
    let made = match (made, path.parent()) {
        (Ok(()), Some(root)) => File::open(root).and_then(|root| root.sync_all()),
        (Err(error), _) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        (made, _) => made,
    };
    made.map_err(|error| io_error(path, error))
}

/// A directory that was opened below an allowed one: files within it, and not out of it.
#[derive(Debug)]
pub(crate) struct BeneathDir {
    dir: File,
    path: PathBuf,
    /// Where it is once links are followed.
    place: PathBuf,
    allowed: AllowedPaths,
}

impl BeneathDir {
    /// Opens a regular file within the directory for reading. It is no other namespace's disk.
    pub(crate) fn open(&self, relative: &Path) -> Result<File, BeneathError> {
        let root = Root {
            descriptor: &self.dir,
            path: &self.path,
            rule: "a path of an image must stay within it".to_owned(),
        };
        let file = open_below(&root, relative, Wanted::RegularFile, Access::Read)?;
        let path = self.path.join(relative);
        let root = Root {
            path: &self.place,
            ..root
        };
        let place = root.place_of(&file)?;
        let AllowedPaths { rules, namespace } = &self.allowed;
        if rules.contains_root(&self.place) {
            // Directories of other namespaces lie in it, too.
            rules
                .judge(namespace, &place, PathUse::Image)
                .map_err(|refusal| self.allowed.not_allowed(&path, &refusal))?;
        }
        self.allowed.check_place(&place, &path)?;
        Ok(file)
    }
}

fn open_root(root: &Path) -> Result<OwnedFd, BeneathError> {
    std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
        .open(root)
        .map(OwnedFd::from)
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => BeneathError::NotFound { path: text(root) },
            _ => io_error(root, error),
        })
}

/// The directory that a path must not leave.
struct Root<'a, D> {
    descriptor: D,
    path: &'a Path,
    /// For the error when it does.
    rule: String,
}

impl<D: AsFd> Root<'_, D> {
    /// How the rules call what was opened beneath it: links may have led to another place in it, and
    /// from its own path to elsewhere.
    fn place_of(&self, found: &File) -> Result<PathBuf, BeneathError> {
        let real = |descriptor: BorrowedFd<'_>| {
            std::fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))
                .map_err(|error| io_error(self.path, error))
        };
        let (root, found) = (real(self.descriptor.as_fd())?, real(found.as_fd())?);
        Ok(match found.strip_prefix(&root) {
            Ok(rest) => self.path.join(rest),
            Err(_) => found,
        })
    }
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
mod tests;
