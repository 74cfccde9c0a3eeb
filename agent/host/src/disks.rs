//! Disks of a VMI: raw images of the user's, and sparse ones that live as long as the VMI.
//!
//! A disk is locked by one VMM at a time, or by several that all read it or call it `shareable`. The lock is on the open file
//! description (flock(2)) that the VMM gets: it is held exactly as long as some process has that descriptor,
//! whatever becomes of the agent. Block devices are also opened with `O_EXCL`: see [`device`].

mod device;
mod other_namespaces;

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use agent_domain::{Disk, DiskCache, DiskSource, Vmi};
use agent_plan::PciAddresses;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;

use crate::beneath::{AllowedPaths, BeneathError};
use crate::config_disks::ConfigVolume;
use crate::disk_images::Draft;
use crate::layout::{absent_is_none, ensure_private_dir};
use crate::machine_config::OpenedDisk;
use crate::work::Work;
use device::Device;

/// Unit of a disk's size.
const SECTOR_BYTES: u64 = 512;

/// Why a disk cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiskError {
    /// Its path is not allowed, is missing, or cannot be opened.
    #[error("disk {disk}")]
    Open {
        /// Name of the disk.
        disk: String,
        /// The underlying error.
        #[source]
        source: BeneathError,
    },
    /// Somebody else has it.
    #[error(
        "disk {disk}: {path} is in use by another VMI or program; a disk has one writer at a time \
         (stop the other one, or make the disk of both readOnly or shareable)"
    )]
    InUse {
        /// Name of the disk.
        disk: String,
        /// Path of the image.
        path: String,
    },
    /// The host has mounted it, a part of it, or what it is a part of.
    #[error(
        "disk {disk}: {path} cannot be used while the block device {device} is mounted at {at}; unmount it"
    )]
    Mounted {
        /// Name of the disk.
        disk: String,
        /// Path of the image.
        path: String,
        /// The kernel's name of what is mounted.
        device: String,
        /// Mount point of the block device.
        at: String,
    },
    /// Its file system cannot do what the cache mode asks for.
    #[error("disk {disk}: {path} cannot be used in its cache mode")]
    NoCacheMode {
        /// Name of the disk.
        disk: String,
        /// Path of the image.
        path: String,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The host could not make or lock it.
    #[error("disk {disk}: {path} cannot be {action}")]
    Io {
        /// Name of the disk.
        disk: String,
        /// Path of the image.
        path: String,
        /// The operation, as a past participle.
        action: &'static str,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
}

impl DiskError {
    /// Whether trying again cannot help.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Open { source, .. } => source.is_final(),
            Self::NoCacheMode { .. } => true,
            Self::InUse { .. } | Self::Mounted { .. } | Self::Io { .. } => false,
        }
    }

    /// The reason of the condition.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Open {
                source: BeneathError::NotFound { .. },
                ..
            } => "DiskNotFound",
            Self::Open { .. } => "DiskNotReadable",
            Self::NoCacheMode { .. } => "DiskCacheNotSupported",
            Self::InUse { .. } => "DiskInUse",
            Self::Mounted { .. } => "DiskMounted",
            Self::Io { .. } => "DiskFailed",
        }
    }
}

/// Opens disks for one VMI.
#[derive(Debug, Clone)]
pub(crate) struct DiskOpener {
    /// Where the VMI's namespace may have images.
    pub(crate) allowed: AllowedPaths,
    /// Where the VMI's own images are.
    pub(crate) own_dir: PathBuf,
    /// Where the guest finds its devices; nowhere as long as nobody knows.
    pub(crate) addresses: PciAddresses,
    /// The operation that they are opened for.
    pub(crate) work: Work,
}

impl DiskOpener {
    /// Opens and locks a disk, making it first where that is asked for.
    ///
    /// The lock goes when the file and all that was duplicated from it are closed.
    pub(crate) fn open(
        &self,
        vmi: &Vmi,
        disk: &Disk,
        base: Option<File>,
    ) -> Result<OpenedDisk, DiskError> {
        let (file, path) = match &disk.source {
            DiskSource::Host { path, create_bytes } => {
                (self.open_host(disk, path, *create_bytes)?, path.clone())
            }
            DiskSource::Empty { capacity_bytes } => self.open_empty(disk, *capacity_bytes)?,
            DiskSource::CloudInit(source) => self.make_volume(
                disk,
                ConfigVolume::of_cloud_init(vmi, &self.addresses, source),
            )?,
            DiskSource::Data(volume) => {
                self.make_volume(disk, Ok(ConfigVolume::of_data(volume)))?
            }
            DiskSource::Container(_) => return self.open_container(disk, base),
        };
        let found = Found { disk, path: &path };
        let device = Device::of(&file).map_err(|error| found.failed("inspected", error))?;
        // Only for devices: a file may be on a file system that does not answer, and others would wait for their turn.
        let _turn = device.is_some().then(device::turn);
        let file = match device {
            Some(device) => found.open_device(device, &file)?,
            None => file,
        };
        let (file, cache) = with_cache(disk, file).map_err(|error| DiskError::NoCacheMode {
            disk: disk.name.to_string(),
            path: path.display().to_string(),
            source: error,
        })?;
        found.lock(&file)?;
        if let Some(device) = device {
            found.ensure_not_shared_beside(device)?;
        }
        Ok(OpenedDisk {
            image: file.into(),
            base: None,
            cache,
        })
    }

    /// Makes sure that a disk can be opened. What is made at each start is made then; here is only seen that it can be.
    pub(crate) fn ensure(
        &self,
        vmi: &Vmi,
        disk: &Disk,
        base: Option<File>,
    ) -> Result<(), DiskError> {
        let volume = match &disk.source {
            DiskSource::CloudInit(source) => {
                ConfigVolume::of_cloud_init(vmi, &self.addresses, source)
            }
            DiskSource::Data(volume) => Ok(ConfigVolume::of_data(volume)),
            // The image is there: what is written over it is made for the VMM.
            DiskSource::Container(_) => return Ok(()),
            DiskSource::Host { .. } | DiskSource::Empty { .. } => {
                return self.open(vmi, disk, base).map(drop);
            }
        };
        let path = self.own_dir.join(format!("{}.iso", disk.name));
        volume
            .and_then(|volume| volume.bytes())
            .map(drop)
            .map_err(|source| io_error(disk, &path, "made", source))
    }

    /// A volume of files, made anew.
    fn make_volume(
        &self,
        disk: &Disk,
        volume: io::Result<ConfigVolume>,
    ) -> Result<(File, PathBuf), DiskError> {
        let made = volume.and_then(|volume| {
            self.work
                .make_own(|| volume.make(&self.own_dir, disk.name.as_str()))
        });
        let path = self.own_dir.join(format!("{}.iso", disk.name));
        match made {
            Ok(file) => Ok((file, path)),
            Err(source) => Err(io_error(disk, &path, "made", source)),
        }
    }

    /// A base that all may read, and a file without a name over it, which goes with its VMM.
    fn open_container(&self, disk: &Disk, base: Option<File>) -> Result<OpenedDisk, DiskError> {
        let failed = |source| io_error(disk, &self.own_dir, "made", source);
        let base = base.expect("the base of an image's disk is opened before the disk");
        if disk.read_only {
            return Ok(OpenedDisk {
                image: base.into(),
                base: None,
                cache: DiskCache::WriteBack,
            });
        }
        let make = || -> io::Result<File> {
            ensure_private_dir(&self.own_dir)?;
            let place = self.own_dir.join(format!("{}.overlay", disk.name));
            let overlay = Draft::new(&place)?.into_unnamed()?;
            let bytes = base.metadata()?.len();
            overlay.set_len(bytes.next_multiple_of(SECTOR_BYTES))?;
            Ok(overlay)
        };
        let overlay = self.work.make_own(make).map_err(failed)?;
        let (image, cache) = match disk.options.cache {
            // What is thrown away need not go past the cache.
            DiskCache::Default => (overlay, DiskCache::WriteBack),
            _ => with_cache(disk, overlay).map_err(failed)?,
        };
        Ok(OpenedDisk {
            image: image.into(),
            base: Some(base.into()),
            cache,
        })
    }

    fn open_host(
        &self,
        disk: &Disk,
        path: &Path,
        create_bytes: Option<u64>,
    ) -> Result<File, DiskError> {
        let opened = match (self.allowed.open_disk(path, disk.read_only), create_bytes) {
            (Err(BeneathError::NotFound { .. }), Some(bytes)) => {
                self.allowed.create_disk(path, bytes)
            }
            (opened, _) => opened,
        };
        let file = opened.map_err(|source| not_opened(disk, source))?;
        let device_belongs_to_other_namespace = || match Device::of(&file)? {
            Some(device) => {
                other_namespaces::device_belongs_to_other_namespace(device, &self.allowed, path)
            }
            None => Ok(false),
        };
        match device_belongs_to_other_namespace() {
            Ok(false) => Ok(file),
            Ok(true) => Err(not_opened(disk, self.allowed.other_namespace_error(path))),
            Err(error) => Err(io_error(disk, path, "inspected", error)),
        }
    }

    fn open_empty(&self, disk: &Disk, bytes: u64) -> Result<(File, PathBuf), DiskError> {
        let path = self.own_dir.join(format!("{}.img", disk.name));
        let make = || -> io::Result<File> {
            ensure_private_dir(&self.own_dir)?;
            let mut options = fs::OpenOptions::new();
            options.read(true).write(true).mode(0o600);
            if let Some(file) = absent_is_none(options.open(&path))? {
                // A crash may have come between making it and giving it its size.
                if file.metadata()?.len() < bytes {
                    file.set_len(bytes)?;
                }
                return Ok(file);
            }
            let file = options.create_new(true).open(&path)?;
            file.set_len(bytes)?;
            Ok(file)
        };
        match self.work.make_own(make) {
            Ok(file) => Ok((file, path)),
            Err(source) => Err(io_error(disk, &path, "made", source)),
        }
    }
}

fn not_opened(disk: &Disk, source: BeneathError) -> DiskError {
    DiskError::Open {
        disk: disk.name.to_string(),
        source,
    }
}

/// A disk that was found and is not locked yet.
struct Found<'a> {
    disk: &'a Disk,
    path: &'a Path,
}

impl Found<'_> {
    /// Whether others may have the disk at the same time, on the same terms.
    fn is_shared(&self) -> bool {
        self.disk.read_only || self.disk.options.shareable
    }

    /// Opens a block device, on which `named` is open, with `O_EXCL`, or as one of those that share it.
    fn open_device(&self, device: Device, named: &File) -> Result<File, DiskError> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(!self.disk.read_only);
        let opened = if self.is_shared() {
            device
                .ensure_no_exclusive_open(named)
                .and_then(|()| device.open(&options, named))
        } else {
            options.custom_flags(libc::O_EXCL);
            device.open(&options, named)
        };
        opened.map_err(|error| {
            if error.kind() != io::ErrorKind::ResourceBusy {
                return self.failed("opened", error);
            }
            match device.mount() {
                Ok(None) => self.in_use(),
                Ok(Some(mount)) => DiskError::Mounted {
                    disk: self.disk.name.to_string(),
                    path: self.path.display().to_string(),
                    device: mount.device,
                    at: mount.at,
                },
                Err(error) => self.failed("inspected", error),
            }
        })
    }

    fn lock(&self, file: &File) -> Result<(), DiskError> {
        let locked = if self.is_shared() {
            file.try_lock_shared()
        } else {
            file.try_lock()
        };
        locked.map_err(|error| match error {
            TryLockError::WouldBlock => self.in_use(),
            TryLockError::Error(source) => self.failed("locked", source),
        })
    }

    /// One that does not share its device looks for those that share the whole disk of it, or a partition of it: they have
    /// not opened it with `O_EXCL`.
    fn ensure_not_shared_beside(&self, device: Device) -> Result<(), DiskError> {
        if self.is_shared() {
            return Ok(());
        }
        match device.has_shared_relatives() {
            Ok(false) => Ok(()),
            Ok(true) => Err(self.in_use()),
            Err(error) => Err(self.failed("inspected", error)),
        }
    }

    fn in_use(&self) -> DiskError {
        DiskError::InUse {
            disk: self.disk.name.to_string(),
            path: self.path.display().to_string(),
        }
    }

    fn failed(&self, action: &'static str, source: io::Error) -> DiskError {
        io_error(self.disk, self.path, action, source)
    }
}

/// The image as its cache mode wants it opened, and the mode, which is never the default.
fn with_cache(disk: &Disk, file: File) -> io::Result<(File, DiskCache)> {
    match disk.options.cache {
        DiskCache::WriteBack => Ok((file, DiskCache::WriteBack)),
        // The VMM syncs after each write: `O_DSYNC` would not cover zeroes and discards.
        DiskCache::WriteThrough => Ok((file, DiskCache::WriteThrough)),
        DiskCache::None => {
            go_direct(&file)?;
            Ok((file, DiskCache::None))
        }
        DiskCache::Default => match go_direct(&file) {
            Ok(()) => Ok((file, DiskCache::None)),
            Err(_) => Ok((file, DiskCache::WriteThrough)),
        },
    }
}

/// A file system that cannot do without its cache says so (`EINVAL`).
fn go_direct(file: &File) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(file, FcntlArg::F_GETFL)?);
    fcntl(file, FcntlArg::F_SETFL(flags | OFlag::O_DIRECT))?;
    Ok(())
}

fn io_error(disk: &Disk, path: &Path, action: &'static str, source: io::Error) -> DiskError {
    DiskError::Io {
        disk: disk.name.to_string(),
        path: path.display().to_string(),
        action,
        source,
    }
}
