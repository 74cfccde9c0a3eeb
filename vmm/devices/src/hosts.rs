//! Disks of a host, made of loop devices: one that has no space for what is written to it, and one that
//! counts its flushes. Where the process may not make them, it says so.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::virtio::blk::CacheMode;

/// The kernel's `O_DIRECT` on x86.
const O_DIRECT: i32 = 0o40000;

/// What a program printed; nothing when it failed or is not there.
fn output<'a>(program: &str, arguments: impl IntoIterator<Item = &'a Path>) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}

/// A loop device.
struct Loop(PathBuf);

impl Loop {
    fn new(file: &Path) -> Option<Self> {
        let made = output("losetup", ["-f".as_ref(), "--show".as_ref(), file]);
        if made.is_none() {
            test_skip::report("there are no loop devices here");
        }
        made.map(|path| Self(path.into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        output("losetup", ["-d".as_ref(), self.0.as_path()]);
    }
}

/// A tmpfs that is unmounted when it is dropped.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn new() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let arguments = ["-t", "tmpfs", "-o", "size=4m", "full"].map(Path::new);
        if output("mount", arguments.into_iter().chain([directory.path()])).is_none() {
            test_skip::report("a tmpfs cannot be mounted here");
            return None;
        }
        Some(Self(directory))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        output("umount", ["-l".as_ref(), self.0.path()]);
    }
}

/// A disk over a sparse file of a tmpfs that is full. Its writeback fails once, and a sync that is tried
/// again succeeds without the data.
pub(crate) struct FullHost {
    /// Ends before what is below it.
    cache: Option<Loop>,
    below: Loop,
    tmpfs: Tmpfs,
}

impl FullHost {
    pub(crate) fn new() -> Option<Self> {
        let tmpfs = Tmpfs::new()?;
        let sparse = tmpfs.0.path().join("sparse");
        File::create(&sparse).unwrap().set_len(32 << 20).unwrap();
        let host = Self {
            cache: None,
            below: Loop::new(&sparse)?,
            tmpfs,
        };
        host.fill_up();
        Some(host)
    }

    /// One whose disk has a cache: what is written past the page cache of this machine is in that of the
    /// disk below, and FLUSH fails.
    pub(crate) fn with_cache() -> Option<Self> {
        let mut host = Self::new()?;
        host.cache = Some(Loop::new(&host.below.0)?);
        Some(host)
    }

    pub(crate) fn disk(&self) -> &Path {
        &self.cache.as_ref().unwrap_or(&self.below).0
    }

    /// As the agent opens it for a cache mode.
    pub(crate) fn open(&self, cache: CacheMode) -> File {
        let is_direct = cache == CacheMode::Direct;
        let flags = if is_direct { O_DIRECT } else { 0 };
        let mut options = File::options();
        options.read(true).write(true).custom_flags(flags);
        options.open(self.disk()).unwrap()
    }

    fn filler(&self) -> PathBuf {
        self.tmpfs.0.path().join("filler")
    }

    pub(crate) fn fill_up(&self) {
        std::fs::write(self.filler(), vec![1; 8 << 20]).unwrap_err();
    }

    pub(crate) fn make_space(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }
}

/// A disk that counts its flushes.
pub(crate) struct LoopDisk {
    made: Loop,
    _file: tempfile::NamedTempFile,
}

impl LoopDisk {
    pub(crate) fn new(bytes: u64) -> Option<Self> {
        let file = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
        file.as_file().set_len(bytes).unwrap();
        let made = Loop::new(file.path())?;
        Some(Self { made, _file: file })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.made.0
    }

    /// Flushes that it has completed.
    pub(crate) fn flushes(&self) -> u64 {
        let name = self.path().file_name().unwrap().to_str().unwrap();
        let counts = std::fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
        // Documentation/block/stat.rst: the sixteenth field.
        counts.split_whitespace().nth(15).unwrap().parse().unwrap()
    }
}

/// A file system on a disk.
pub(crate) struct FileSystem(tempfile::TempDir);

impl FileSystem {
    /// `make` is the program that makes it, and its options.
    pub(crate) fn new(disk: &Path, make: &[&str]) -> Option<Self> {
        let (program, options) = make.split_first()?;
        let directory = tempfile::tempdir().unwrap();
        let made = output(program, options.iter().map(Path::new).chain([disk]))
            .and_then(|_| output("mount", [disk, directory.path()]));
        if made.is_none() {
            test_skip::report(&format!("{program} makes nothing here that can be mounted"));
        }
        made.map(|_| Self(directory))
    }

    /// An ext4 without a journal, which would stop it at the first error.
    pub(crate) fn without_journal(disk: &Path) -> Option<Self> {
        let make = [
            "mkfs.ext4",
            "-q",
            "-O",
            "^has_journal",
            "-E",
            "lazy_itable_init=0",
        ];
        Self::new(disk, &make)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// An image without data.
    pub(crate) fn image(&self, bytes: u64) -> File {
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        let file = options.open(self.path().join("image")).unwrap();
        file.set_len(bytes).unwrap();
        file.sync_all().unwrap();
        file
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        output("umount", ["-l".as_ref(), self.0.path()]);
    }
}
