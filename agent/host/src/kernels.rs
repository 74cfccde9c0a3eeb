//! Kernels and initrds: found in their image, unpacked by an unprivileged child, kept by digest.

mod cache;
mod image;
mod layers;

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use agent_domain::{ImageLocation, KernelBoot};
use agent_images::kernel::{KernelFormat, UnpackKernelError, UnpackLimits, kernel_format};

use agent_images::oci::OciError;

use crate::beneath::{AllowedPaths, BeneathError};
use crate::work::{Foreign, Work, on_thread};
pub(crate) use cache::{KernelCache, KernelCacheSettings, PackedKernel};
pub(crate) use image::open_layout;
pub(crate) use layers::{LayerReading, find_in_archive, read_layers};

/// Why there is no kernel to boot.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KernelError {
    /// A file of the image cannot be opened.
    #[error(transparent)]
    Open(#[from] BeneathError),
    /// A guest has it as a disk to write to.
    #[error("{path} is in use as a disk that a guest or program writes to; boot from a copy of it")]
    InUse {
        /// Path of the file.
        path: String,
    },
    /// The image cannot be read.
    #[error("the image {location} cannot be used")]
    Image {
        /// The image, as the spec names it.
        location: String,
        /// The underlying error.
        #[source]
        source: OciError,
    },
    /// A file cannot be taken out of the image's layers.
    #[error("the image {location} cannot be used: {message}")]
    Layers {
        /// The image, as the spec names it.
        location: String,
        /// What the child said.
        message: String,
    },
    /// The kernel is none, or in a form that cannot be booted.
    #[error("{path} cannot be booted")]
    Format {
        /// Path within the image.
        path: String,
        /// The underlying error.
        #[source]
        source: UnpackKernelError,
    },
    /// The child that unpacks refused the kernel.
    #[error("{path} cannot be unpacked: {message}")]
    Unpack {
        /// Path within the image.
        path: String,
        /// What the child said.
        message: String,
        /// Whether it was the kernel's fault, not the host's.
        is_final: bool,
    },
    /// The host failed.
    #[error("the kernel cache cannot be used")]
    Cache(#[from] io::Error),
}

impl KernelError {
    /// Whether trying again cannot help: files may appear and hosts may recover, but a path that
    /// is not allowed stays so, and so does a kernel that is none.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Open(error) => error.is_final(),
            Self::Format { source, .. } => !matches!(source, UnpackKernelError::Io(_)),
            Self::Unpack { is_final, .. } => *is_final,
            Self::InUse { .. } | Self::Image { .. } | Self::Layers { .. } | Self::Cache(_) => false,
        }
    }

    /// The reason of the condition.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Open(BeneathError::NotFound { .. }) => "KernelNotFound",
            Self::Open(_) => "KernelNotReadable",
            Self::InUse { .. } => "KernelInUse",
            Self::Image { .. } | Self::Layers { .. } => "ImageNotReadable",
            Self::Format { .. } | Self::Unpack { .. } => "KernelNotBootable",
            Self::Cache(_) => "KernelCacheFailed",
        }
    }
}

/// What is booted, opened for reading.
#[derive(Debug)]
pub(crate) struct BootFiles {
    pub(crate) kernel: File,
    pub(crate) initrd: Option<File>,
}

/// Finds kernel and initrd of a VMI and unpacks the kernel where that is wanted and needed.
pub(crate) async fn boot_files(
    boot: &KernelBoot,
    allowed: &AllowedPaths,
    (cache, unpack): (&KernelCache, bool),
    work: &Work,
) -> Result<Foreign<BootFiles>, KernelError> {
    let place = image::image_path(&boot.image);
    let found = image::find(boot, allowed, &cache.extracted_files(), work).await?;
    let initrd = Foreign::new(found.initrd);
    let path = boot.kernel_path.display().to_string();
    let mut kernel = found.kernel;
    let (kernel, format) = work
        .files(place, move || {
            let format = kernel_format(&mut kernel);
            Ok::<_, KernelError>((kernel, format))
        })
        .await?;
    let mut kernel = Foreign::new(kernel);
    let format = format.map_err(|source| KernelError::Format {
        path: path.clone(),
        source,
    })?;
    let needs_unpacking = match format {
        KernelFormat::Elf => false,
        KernelFormat::Compressed(_) => true,
        KernelFormat::BzImage(_) => unpack,
    };
    if needs_unpacking {
        let packed = PackedKernel {
            name: &path,
            place,
            max_bytes: UnpackLimits::default().input_bytes,
        };
        let unpacked = cache.unpacked(&packed, kernel, work).await?;
        kernel = Foreign::new(unpacked);
    }
    Ok(Foreign::new(BootFiles {
        kernel: kernel.into_inner(),
        initrd: initrd.into_inner(),
    }))
}

/// An image as the spec names it.
pub(crate) fn location_text(location: &ImageLocation) -> String {
    match location {
        ImageLocation::Directory(path) => format!("dir:{}", path.display()),
        ImageLocation::OciLayout { path, reference } => {
            let suffix = reference.as_ref().map(|name| format!(":{name}"));
            format!("oci:{}{}", path.display(), suffix.unwrap_or_default())
        }
    }
}

/// A disk that a guest writes to is no kernel, no initrd and no part of an image: its lock is exclusive (see
/// [`crate::disks`]), and this one is held for as long as somebody has the file.
pub(crate) fn shared(file: File, path: &Path) -> Result<File, KernelError> {
    match file.try_lock_shared() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(KernelError::InUse {
            path: path.display().to_string(),
        }),
        Err(TryLockError::Error(source)) => {
            let path = path.display().to_string();
            Err(BeneathError::Io { path, source }.into())
        }
    }
}

/// Runs what reads files on a thread that may wait.
pub(crate) async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, KernelError> + Send + 'static,
) -> Result<T, KernelError> {
    on_thread(call).await?
}

/// Files that were taken out of images.
#[derive(Debug, Clone)]
pub(crate) struct ExtractedFiles {
    dir: PathBuf,
    /// The program that has the hidden subcommand `read-layers`.
    helper: PathBuf,
    max_bytes: u64,
}
