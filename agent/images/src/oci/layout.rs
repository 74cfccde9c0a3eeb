//! An image as directories and blobs, the bounds of reading one, and what can be wrong with it.

use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Opens files of the layout's directory, and none outside of it. How is the caller's business.
pub trait LayoutDir {
    /// Opens a regular file for reading, by its path relative to the layout.
    ///
    /// # Errors
    /// When it is not there, is no regular file, or lies outside.
    fn open(&self, relative: &Path) -> io::Result<Box<dyn Read>>;
}

/// Bounds of reading one image.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct OciLimits {
    /// Largest `index.json` or manifest, in bytes.
    pub document_bytes: u64,
    /// Most layers.
    pub layers: usize,
    /// Largest layer, packed, in bytes.
    pub layer_bytes: u64,
    /// Largest layer, unpacked, in bytes.
    pub unpacked_layer_bytes: u64,
    /// Largest file that is taken out, in bytes.
    pub file_bytes: u64,
    /// What may be read for one file in all, packed and unpacked bytes of all layers. Each link on the way
    /// to the file has all layers read again.
    pub total_bytes: u64,
}

impl Default for OciLimits {
    fn default() -> Self {
        Self {
            document_bytes: 4 << 20,
            layers: 128,
            layer_bytes: 8 << 30,
            unpacked_layer_bytes: 16 << 30,
            file_bytes: 1 << 30,
            total_bytes: 64 << 30,
        }
    }
}

/// Why a file could not be taken out of an image.
#[derive(Debug, thiserror::Error)]
pub enum OciError {
    /// A file of the layout cannot be opened or read.
    #[error("{file} of the image layout cannot be read")]
    Read {
        /// Path within the layout.
        file: String,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A document is not what the specification says.
    #[error("{file} of the image layout is malformed: {what}")]
    Malformed {
        /// Path within the layout.
        file: String,
        /// The defect, as the message has it.
        what: String,
    },
    /// No image of that name, or none for this architecture.
    #[error("the layout holds no image {wanted}; it holds {held}")]
    NoSuchImage {
        /// What was asked for.
        wanted: String,
        /// Names of the images in the layout, separated by commas.
        held: String,
    },
    /// A bound is exceeded.
    #[error("{what} of the image is larger than the {limit} allowed")]
    TooLarge {
        /// What is too large.
        what: String,
        /// The limit, in bytes or pieces.
        limit: u64,
    },
    /// A blob is not the one that its name promises.
    #[error("the blob {digest} of the image layout is damaged: its contents have another {what}")]
    Damaged {
        /// The digest that the manifest gives.
        digest: String,
        /// Digest or size.
        what: &'static str,
    },
    /// Something that the specification allows and this release cannot do.
    #[error("{0} cannot be read by this release")]
    Unsupported(String),
    /// The file is not in the image.
    #[error("{0}: not in the image")]
    NotFound(String),
    /// The path names something else.
    #[error("{path}: {what}, not a regular file")]
    NotAFile {
        /// Path within the image.
        path: String,
        /// Type of the entry: "a directory".
        what: &'static str,
    },
    /// A directory that is to hold one file holds none or more.
    #[error("{0}")]
    NoOneFile(String),
    /// Writing the file failed.
    #[error("the file cannot be written")]
    Write(#[source] io::Error),
}
