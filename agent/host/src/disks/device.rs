//! Who uses block devices, which are known by their numbers: a device has as many nodes as somebody makes for it, and
//! its partitions are parts of it.
//!
//! Whoever writes to a device opens it with `O_EXCL`. The kernel then refuses every other such open and every mount,
//! of the device, of the disk that it is a partition of and of its partitions. Those that share a device (readers, and
//! guests whose disk is `shareable`) do not open it so: each makes sure that nobody has, and keeps a shared lock on the
//! node that the kernel made for the device, whatever node was named. Writers look for such locks. All locks and exclusive opens end with the last descriptor of the open
//! file description, which the VMM has.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::libc;
use nix::sys::stat::{major, minor};

/// A device has to stay as it was found until it is open and locked.
static TURN: Mutex<()> = Mutex::new(());

/// Waits until nobody else in this process opens and locks a disk. Only one agent runs on a node.
pub(super) fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A mount of a block device.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// The kernel's name of the device.
    pub device: String,
    /// Where it is mounted.
    pub at: String,
}

/// A block device, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Device(u64);

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", major(self.0), minor(self.0))
    }
}

impl Device {
    /// The device that a node stands for; `None` for a file.
    pub(super) fn of(node: &File) -> io::Result<Option<Self>> {
        let metadata = node.metadata()?;
        let is_device = metadata.file_type().is_block_device();
        Ok(is_device.then(|| Self(metadata.rdev())))
    }

    /// The device that a path leads to; `None` for a file, and where it leads nowhere at present.
    pub(super) fn at(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        found
            .file_type()
            .is_block_device()
            .then(|| Self(found.rdev()))
    }

    /// The device itself, and what is a part of it or it is a part of.
    pub(super) fn related(self) -> io::Result<Vec<Self>> {
        Ok([vec![self], self.relatives()?].concat())
    }

    /// Opens the device that `handle` is open on, anew.
    ///
    /// The node is the one that the kernel made, on which all locks of the device meet. A system without such nodes has
    /// only the one that was named.
    pub(super) fn open(self, options: &OpenOptions, handle: &File) -> io::Result<File> {
        if let Some(node) = self.node()? {
            let file = options.open(node)?;
            if Self::of(&file)? == Some(self) {
                return Ok(file);
            }
        }
        options.open(format!("/proc/self/fd/{}", handle.as_raw_fd()))
    }

    /// Makes sure that nobody writes to the device and that nothing of it is mounted. `EBUSY` when that is not so.
    pub(super) fn ensure_no_exclusive_open(self, handle: &File) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_EXCL);
        self.open(&options, handle).map(drop)
    }

    /// Whether somebody shares the disk that this is a partition of, or a partition of it.
    pub(super) fn has_shared_relatives(self) -> io::Result<bool> {
        for relative in self.relatives()? {
            let Some(node) = relative.node()? else {
                continue;
            };
            let relative = match File::open(node) {
                Ok(relative) => relative,
                // What the agent may not open (systemd's DeviceAllow=) it has given nobody.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => continue,
                Err(error) => return Err(error),
            };
            match relative.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(true),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Ok(false)
    }

    /// A mount of the device, of the disk that it is a partition of, or of a partition of it.
    pub(super) fn mount(self) -> io::Result<Option<Mount>> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        for device in self.related()? {
            if let Some(at) = mount_point(&mounts, &device.to_string()) {
                let device = device.name()?.unwrap_or_else(|| device.to_string());
                return Ok(Some(Mount { device, at }));
            }
        }
        Ok(None)
    }

    /// The disk of a partition, or the partitions of a disk.
    fn relatives(self) -> io::Result<Vec<Self>> {
        let directory = fs::canonicalize(self.sysfs())?;
        if directory.join("partition").try_exists()? {
            let whole = directory.parent().map(Self::of_sysfs).transpose()?;
            return Ok(whole.into_iter().collect());
        }
        let mut partitions = Vec::new();
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            let directory = entry.path();
            if entry.file_type()?.is_dir() && directory.join("partition").try_exists()? {
                partitions.push(Self::of_sysfs(&directory)?);
            }
        }
        Ok(partitions)
    }

    fn of_sysfs(directory: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(directory.join("dev"))?;
        let number = text.trim().split_once(':').and_then(|(major, minor)| {
            Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
        });
        number
            .map(Self)
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn sysfs(self) -> PathBuf {
        format!("/sys/dev/block/{self}").into()
    }

    /// The kernel's name of the device.
    fn name(self) -> io::Result<Option<String>> {
        let event = fs::read_to_string(self.sysfs().join("uevent"))?;
        let name = event.lines().find_map(|line| line.strip_prefix("DEVNAME="));
        Ok(name.map(str::to_owned))
    }

    /// The node that the kernel made for the device, if there is one.
    fn node(self) -> io::Result<Option<PathBuf>> {
        let Some(name) = self.name()? else {
            return Ok(None);
        };
        let node = Path::new("/dev").join(name);
        match fs::symlink_metadata(&node) {
            Ok(found) if found.file_type().is_block_device() && found.rdev() == self.0 => {
                Ok(Some(node))
            }
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Where the device with this number is mounted, by proc(5)'s `mountinfo`.
fn mount_point(mounts: &str, number: &str) -> Option<String> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(2);
        (fields.next()? == number).then(|| fields.nth(1).unwrap_or_default().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::mount_point;

    const MOUNTS: &str = "\
22 1 0:21 / /proc rw - proc proc rw
30 1 254:1 / / rw,noatime shared:1 - ext4 /dev/vda1 rw
31 30 254:17 /sub /mnt/with\\040space rw - ext4 /dev/vdb1 rw
";

    #[test]
    fn a_mount_is_found_by_the_number_of_its_device() {
        assert_eq!(mount_point(MOUNTS, "254:1").as_deref(), Some("/"));
        assert_eq!(
            mount_point(MOUNTS, "254:17").as_deref(),
            Some("/mnt/with\\040space")
        );
        assert_eq!(mount_point(MOUNTS, "254:0"), None);
    }
}
