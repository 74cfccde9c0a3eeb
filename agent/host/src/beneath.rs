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

    /// Opens an archive with an image, for reading.
    pub(crate) fn open_boot_file(&self, path: &Path) -> Result<File, BeneathError> {
        let root = self.root_of(path, PathUse::Boot)?;
        let opened = root.opened()?;
        let relative = root.relative(path)?;
        let file = open_below(&opened, relative, Wanted::RegularFile, Access::Read)?;
        self.check_place(&opened.place_of(&file)?, path)?;
        Ok(file)
    }

    /// Opens a directory that holds kernels, initrds or an image layout.
    pub(crate) fn open_boot_dir(&self, path: &Path) -> Result<BeneathDir, BeneathError> {
        let root = self.root_of(path, PathUse::Boot)?;
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
    pub(crate) fn claims(&self) -> Vec<(&Path, &PathRecord)> {
        self.rules.claims()
    }

    /// Disks of other namespaces that go before this path, should it lead to the same device.
    pub(crate) fn disks_before<'a>(&'a self, path: &Path) -> impl Iterator<Item = &'a Path> {
        self.rules.disks_before(&self.namespace, path)
    }

    /// The refusal of a path that leads to such a disk.
    pub(crate) fn of_another(&self, path: &Path) -> BeneathError {
        self.not_allowed(path, &PathRefusal::OfAnother)
    }

    /// Symlinks within a directory may lead from one disk to another, and to the directory of another namespace.
    fn check_place(&self, place: &Path, path: &Path) -> Result<(), BeneathError> {
        if self.rules.is_of_another(&self.namespace, place) {
            return Err(self.of_another(path));
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
        if rules.holds_roots(&self.place) {
            // Directories of other namespaces lie in it, too.
            rules
                .judge(namespace, &place, PathUse::Boot)
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
mod tests {
    use std::io::Write;
    use std::os::unix::fs::symlink;
    use std::sync::Arc;

    use agent_domain::PathGrant;

    use super::*;

    struct Fixture {
        dir: tempfile::TempDir,
        allowed: AllowedPaths,
    }

    impl Fixture {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let root = dir.path().join("images");
            let own = root.join("a");
            std::fs::create_dir_all(own.join("sub")).unwrap();
            std::fs::create_dir_all(root.join("b")).unwrap();
            std::fs::write(own.join("sub/file"), "inside").unwrap();
            std::fs::write(root.join("b/file"), "another's").unwrap();
            std::fs::write(dir.path().join("secret"), "outside").unwrap();
            let rules = PathRules {
                disks: vec![root],
                setting: "paths.grants in the file".to_owned(),
                ..PathRules::default()
            };
            let allowed = AllowedPaths::new(rules, "a");
            Self { dir, allowed }
        }

        fn own(&self) -> PathBuf {
            self.dir.path().join("images/a")
        }

        fn open(&self, relative: &str) -> Result<File, BeneathError> {
            self.allowed.open_disk(&self.own().join(relative), true)
        }
    }

    #[test]
    fn a_file_below_the_directory_of_the_namespace_is_opened() {
        let fixture = Fixture::new();
        fixture.open("sub/file").unwrap();
        symlink("sub/file", fixture.own().join("link")).unwrap();
        fixture.open("link").unwrap();
    }

    #[test]
    fn a_symlink_out_of_the_directory_is_refused_and_the_setting_named() {
        let fixture = Fixture::new();
        let own = fixture.own();
        symlink("../../secret", own.join("relative")).unwrap();
        symlink("../b/file", own.join("neighbour")).unwrap();
        symlink(fixture.dir.path().join("secret"), own.join("absolute")).unwrap();
        symlink("../..", own.join("up")).unwrap();
        symlink("/proc/self/cwd", own.join("magic")).unwrap();
        for name in [
            "relative",
            "neighbour",
            "absolute",
            "up/etc/passwd",
            "magic/Cargo.toml",
        ] {
            let error = fixture.open(name).unwrap_err();
            assert!(
                matches!(error, BeneathError::Escapes { .. }),
                "{name}: {error:?}"
            );
            assert!(
                error.to_string().contains("paths.grants in the file"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_path_outside_is_refused_and_path_namespace_and_setting_are_named() {
        let fixture = Fixture::new();
        let images = fixture.dir.path().join("images");
        for path in [
            PathBuf::from("/etc/passwd"),
            PathBuf::from("relative"),
            images.join("b/file"),
            images.join("a/../b/file"),
            images.join("ab/file"),
            fixture.dir.path().join("images-of-others/file"),
        ] {
            let error = fixture.allowed.open_disk(&path, true).unwrap_err();
            assert!(
                matches!(error, BeneathError::NotAllowed { .. }),
                "{error:?}"
            );
            let said = error.to_string();
            for named in [&*text(&path), "\"a\"", "paths.grants in the file"] {
                assert!(said.contains(named), "{said}");
            }
        }
    }

    #[test]
    fn a_link_between_disks_leads_to_no_other_namespaces_disk() {
        let fixture = Fixture::new();
        // The operator's own link, which is followed, hides nobody's disk.
        let srv = fixture.dir.path().join("srv");
        std::fs::create_dir(fixture.dir.path().join("data")).unwrap();
        symlink("data", &srv).unwrap();
        std::fs::write(srv.join("disk"), "another's").unwrap();
        symlink("disk", srv.join("link")).unwrap();
        let mut rules = PathRules {
            grants: vec![PathGrant {
                path: srv.clone(),
                namespaces: ["a".to_owned(), "b".to_owned()].into(),
            }],
            ..PathRules::default()
        };
        let open = |rules: &PathRules, namespace| {
            let allowed = AllowedPaths::new(rules.clone(), namespace);
            let disk = allowed.open_disk(&srv.join("link"), false);
            let boot = allowed.open_boot_dir(&srv).unwrap();
            (disk, boot.open(Path::new("disk")))
        };
        assert!(matches!(open(&rules, "b"), (Ok(_), Ok(_))));
        let record = PathRecord {
            namespaces: ["a".to_owned()].into(),
            exclusive: true,
            since: 1,
        };
        rules.records = Arc::new([(srv.join("disk"), record)].into());
        assert!(matches!(open(&rules, "a"), (Ok(_), Ok(_))));
        let (disk, boot) = open(&rules, "b");
        assert!(matches!(disk, Err(BeneathError::NotAllowed { .. })));
        assert!(matches!(boot, Err(BeneathError::NotAllowed { .. })));
    }

    #[test]
    fn a_remembered_path_leads_into_no_other_namespaces_directory() {
        let fixture = Fixture::new();
        let images = fixture.dir.path().join("images");
        symlink("../b/file", fixture.own().join("neighbour")).unwrap();
        symlink("b", images.join("dir")).unwrap();
        symlink("a/sub/file", images.join("link")).unwrap();
        let paths = ["a/neighbour", "dir", "link"].map(|path| images.join(path));
        let record = |path: PathBuf| {
            let namespaces = ["a".to_owned()].into();
            let (exclusive, since) = (true, 0);
            (
                path,
                PathRecord {
                    namespaces,
                    exclusive,
                    since,
                },
            )
        };
        let mut rules = fixture.allowed.rules.clone();
        rules.records = Arc::new(paths.map(record).into());
        let allowed = AllowedPaths::new(rules, "a");
        allowed.open_disk(&images.join("link"), true).unwrap();
        for path in ["a/neighbour", "dir/file"] {
            let error = allowed.open_disk(&images.join(path), true).unwrap_err();
            assert!(
                matches!(error, BeneathError::NotAllowed { .. }),
                "{path}: {error:?}"
            );
        }
        let made = allowed.create_disk(&images.join("dir/new"), 1 << 20);
        assert!(
            matches!(made, Err(BeneathError::NotAllowed { .. })),
            "{made:?}"
        );
        assert!(!images.join("b/new").exists());
    }

    #[test]
    fn an_image_that_holds_directories_of_namespaces_does_not_lead_into_theirs() {
        let fixture = Fixture::new();
        let images = fixture.dir.path().join("images");
        std::fs::write(images.join("vmlinuz"), "from before").unwrap();
        let record = |path: PathBuf| {
            let namespaces = ["a".to_owned()].into();
            let exclusive = false;
            (
                path,
                PathRecord {
                    namespaces,
                    exclusive,
                    since: 0,
                },
            )
        };
        let mut rules = fixture.allowed.rules.clone();
        rules.boot = rules.disks.clone();
        rules.records = Arc::new([images.clone(), images.join("vmlinuz")].map(record).into());
        let dir = AllowedPaths::new(rules, "a")
            .open_boot_dir(&images)
            .unwrap();
        dir.open(Path::new("vmlinuz")).unwrap();
        dir.open(Path::new("a/sub/file")).unwrap();
        let error = dir.open(Path::new("b/file")).unwrap_err();
        assert!(
            matches!(error, BeneathError::NotAllowed { .. }),
            "{error:?}"
        );
    }

    #[test]
    fn a_fifo_or_directory_is_not_taken_for_a_file() {
        let fixture = Fixture::new();
        let fifo = fixture.own().join("fifo");
        nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        for name in ["fifo", "sub"] {
            let error = fixture.open(name).unwrap_err();
            assert!(matches!(error, BeneathError::WrongType { .. }), "{error:?}");
        }
    }

    #[test]
    fn a_new_file_is_sparse_and_never_replaces_another() {
        let fixture = Fixture::new();
        let path = fixture.own().join("sub/new.img");
        let mut file = fixture.allowed.create_disk(&path, 1 << 30).unwrap();
        file.write_all(b"x").unwrap();
        let meta = std::fs::metadata(&path).unwrap();
        assert_eq!(meta.len(), 1 << 30);
        assert!(std::os::unix::fs::MetadataExt::blocks(&meta) < 1000);
        assert!(fixture.allowed.create_disk(&path, 1).is_err());
        let outside = fixture.dir.path().join("new.img");
        assert!(fixture.allowed.create_disk(&outside, 1).is_err());
    }

    #[test]
    fn a_new_file_that_fails_does_not_stay_behind() {
        let fixture = Fixture::new();
        let path = fixture.own().join("sub/new.img");
        // More than any file system has.
        fixture.allowed.create_disk(&path, u64::MAX).unwrap_err();
        assert!(!path.exists(), "the next attempt would take it as it is");
        fixture.allowed.create_disk(&path, 1 << 20).unwrap();
    }

    #[test]
    fn the_first_disk_of_a_namespace_makes_its_directory() {
        let fixture = Fixture::new();
        let rules = fixture.allowed.rules.clone();
        let path = fixture.dir.path().join("images/new/disk");
        let allowed = AllowedPaths::new(rules, "new");
        assert!(matches!(
            allowed.open_disk(&path, false),
            Err(BeneathError::NotFound { .. })
        ));
        allowed.create_disk(&path, 1 << 20).unwrap();
        allowed.open_disk(&path, false).unwrap();
    }
}
