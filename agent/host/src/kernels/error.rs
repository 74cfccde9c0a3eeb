//! Why there is no kernel to boot.

use std::io;

use agent_images::kernel::UnpackKernelError;
use agent_images::oci::OciError;

use crate::beneath::BeneathError;

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
    /// A file that is taken out of the image's layers does not fit.
    #[error("the image {location} cannot be used: {message}")]
    Full {
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
            Self::InUse { .. }
            | Self::Image { .. }
            | Self::Layers { .. }
            | Self::Full { .. }
            | Self::Cache(_) => false,
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
            Self::Full { .. } | Self::Cache(_) => "KernelCacheFailed",
        }
    }
}
