//! OCI image layouts on disk: one file out of an image's layers.
//!
//! Source: OCI Image Format Specification 1.1, "Image Layout", "Image Manifest" and "Filesystem
//! Layers". Everything is read as a stream, each blob is compared with its digest and size, and
//! what is not listed in the manifest is never looked at.

mod archive;
mod blob;
mod budget;
mod layer;
mod layout;
mod lookup;
mod manifest;
mod only_file;
mod output;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use self::archive::{ArchiveKind, ArchivedImage, Window};
use self::budget::Budget;
use self::layer::Layers;
pub use self::layout::{LayoutDir, OciError, OciLimits};
pub use self::manifest::ImageManifest;
use self::only_file::OnlyFile;
pub use self::output::Output;

impl<F: Fn(&Path) -> io::Result<File>> LayoutDir for F {
    fn open(&self, relative: &Path) -> io::Result<Box<dyn Read>> {
        self(relative).map(|file| Box::new(file) as Box<dyn Read>)
    }
}

/// A file of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ImageFile {
    /// At this path.
    At(PathBuf),
    /// The only entry of this directory, whatever it is called.
    OnlyOneIn(PathBuf),
}

impl ImageManifest {
    /// As [`Self::extract`], of a file whose name need not be known. Each layer is then read once, unless links or files of
    /// several layers are in the way.
    ///
    /// # Errors
    /// See [`OciError`].
    pub fn extract_file<D: LayoutDir, W: Output>(
        &self,
        dir: &D,
        file: &ImageFile,
        output: &mut W,
        limits: OciLimits,
    ) -> Result<u64, OciError> {
        let directory = match file {
            ImageFile::At(path) => return self.extract(dir, path, output, limits),
            ImageFile::OnlyOneIn(directory) => directory,
        };
        let budget = Budget::new(limits.total_bytes);
        let layers = Layers {
            dir,
            limits,
            budget: &budget,
        };
        match only_file::take_only_file(&layers, self.layers(), directory, output)? {
            OnlyFile::Taken(bytes) => Ok(bytes),
            OnlyFile::At(path) => {
                output.restart().map_err(OciError::Write)?;
                self.extract(dir, &path, output, limits)
            }
        }
    }

    /// Writes the file at `path` of the image, symlinks followed within it, to `output`.
    ///
    /// `output` may have been written to in part when an error is returned.
    ///
    /// # Errors
    /// See [`OciError`].
    pub fn extract<D: LayoutDir, W: Write>(
        &self,
        dir: &D,
        path: &Path,
        output: &mut W,
        limits: OciLimits,
    ) -> Result<u64, OciError> {
        let budget = Budget::new(limits.total_bytes);
        let layers = Layers {
            dir,
            limits,
            budget: &budget,
        };
        let found = lookup::find(&layers, self.layers(), path)?;
        layers.extract(found.layer, found.index, output)
    }
}

#[cfg(test)]
mod tests;
