//! Files that are read: one on this machine's disk, past its page cache, and one in memory.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use integration::artifacts;
use nix::fcntl::OFlag;
use tempfile::TempDir;

const MIB: usize = 1 << 20;
/// More than disks keep in memory of their own, as far as that is known.
const DISK_MIB: usize = 1024;
const MEMORY_MIB: usize = 256;
const MEMORY: &str = "/dev/shm";

/// A file.
#[derive(Debug)]
pub struct TestFile {
    /// For people.
    pub name: &'static str,
    /// The least that a guest should have of what io_uring has, and the goal.
    pub budget: (f64, f64),
    image: PathBuf,
    direct: bool,
    _directory: TempDir,
}

/// Both.
pub fn all() -> anyhow::Result<Vec<TestFile>> {
    let disk = TestFile::make("disk", &artifacts::directory()?, DISK_MIB, (0.9, 0.95))?;
    let memory = TestFile::make("tmpfs", Path::new(MEMORY), MEMORY_MIB, (0.5, 0.8))?;
    for place in [&disk, &memory] {
        let how = if place.direct {
            "with O_DIRECT"
        } else {
            "buffered, O_DIRECT is refused"
        };
        eprintln!("{}: {}, {how}", place.name, place.image.display());
    }
    Ok(vec![disk, memory])
}

impl TestFile {
    fn make(
        name: &'static str,
        directory: &Path,
        mib: usize,
        budget: (f64, f64),
    ) -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("bench-io-")
            .tempdir_in(directory)
            .with_context(|| directory.display().to_string())?;
        let image = directory.path().join("image.raw");
        fill(&image, mib)?;
        let direct = match open(&image, true) {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::InvalidInput => false,
            Err(error) => return Err(error.into()),
        };
        Ok(Self {
            name,
            budget,
            image,
            direct,
            _directory: directory,
        })
    }

    /// Path of the image.
    pub fn image(&self) -> &Path {
        &self.image
    }

    /// How vmm-front is to open it.
    pub fn disk_options(&self) -> &'static str {
        if self.direct { ",ro,cache=none" } else { ",ro" }
    }

    /// Opens it the same way.
    pub fn open(&self) -> anyhow::Result<Arc<File>> {
        Ok(Arc::new(open(&self.image, self.direct)?))
    }
}

fn open(path: &Path, direct: bool) -> std::io::Result<File> {
    let flags = if direct {
        OFlag::O_DIRECT
    } else {
        OFlag::empty()
    };
    OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits())
        .open(path)
}

/// Fills all of it: a disk does not read what was never written.
fn fill(path: &Path, mib: usize) -> anyhow::Result<()> {
    let mut file = File::create(path)?;
    let mut piece = vec![0; MIB];
    for number in 0..mib {
        for (byte, value) in piece.iter_mut().zip((0..=250).cycle().skip(number % 251)) {
            *byte = value;
        }
        file.write_all(&piece)?;
    }
    Ok(file.sync_all()?)
}
