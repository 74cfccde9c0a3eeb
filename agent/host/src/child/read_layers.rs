//! `kvmlet read-layers`: takes one file out of the layers of an image, for [`crate::kernels`].
//!
//! Layers come from whoever wrote the image, and are packed archives in archives. Standard input is a
//! socket to the agent: a byte comes with all descriptors, that of the new file first, then those of the
//! layers, the lowest first; then a [`Request`] as JSON up to the end. To standard output goes one
//! [`Reply`]. Of each layer no more is read than its size, from the start. Everything else is given up
//! before the first byte of a layer is read.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use agent_images::disk::{DiskFormat, Layer, disk_info};
use agent_images::oci::{ImageFile, ImageManifest, LayoutDir, OciError, OciLimits, Window};
use serde::{Deserialize, Serialize};

use super::confine::{Bounds, confine_with};
use super::descriptors::receive;
use super::sparse_file::SparseFile;
use crate::failure::chain;
use crate::helpers;

/// The hidden subcommand's name.
pub(crate) const SUBCOMMAND: &str = "read-layers";

/// What is to be taken out of which layers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) manifest: ImageManifest,
    /// Where each layer is in its file, the lowest first; none: layers are whole files.
    pub(crate) windows: Vec<Window>,
    /// The file within the image.
    pub(crate) file: ImageFile,
    pub(crate) limits: OciLimits,
    /// What has to stay free of the new file's file system.
    pub(crate) reserve_bytes: u64,
    pub(crate) cpu_seconds: u64,
}

/// The answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The file is written.
    Written {
        /// So large it is.
        bytes: u64,
        /// As a disk it is a raw one.
        is_raw: bool,
    },
    /// Why it cannot be done, with all causes.
    Refused(String),
    /// It does not fit.
    Full(String),
}

pub(super) fn serve() -> io::Result<()> {
    let mut socket = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut descriptors = receive(&socket)?.into_iter().map(File::from);
    let mut text = Vec::new();
    socket.read_to_end(&mut text)?;
    let request: Request = serde_json::from_slice(&text)?;
    let bounds = Bounds {
        address_space_bytes: helpers::READ_LAYERS.bytes,
        cpu_seconds: request.cpu_seconds,
        output_bytes: request.limits.file_bytes,
    };
    confine_with(bounds, &[nix::libc::SYS_fstatfs])?;
    let output = descriptors.next().ok_or(io::ErrorKind::InvalidInput)?;
    let mut output = SparseFile::new(output, request.reserve_bytes);
    let layers = Layers {
        files: request.manifest.layer_paths().zip(descriptors).collect(),
        windows: &request.windows,
    };
    let Request {
        manifest,
        file,
        limits,
        ..
    } = &request;
    let reply = match manifest.extract_file(&layers, file, &mut output, *limits) {
        Ok(bytes) => written(output.finish()?, bytes),
        Err(error) => {
            let message = chain(&error);
            match error {
                OciError::Write(source) if source.kind() == io::ErrorKind::StorageFull => {
                    Reply::Full(message)
                }
                _ => Reply::Refused(message),
            }
        }
    };
    io::stdout().write_all(&serde_json::to_vec(&reply)?)
}

fn written(file: File, bytes: u64) -> Reply {
    let layer = Layer {
        name: String::new(),
        reader: Box::new(file),
        format: None,
    };
    // What is wrong with it shows when it is converted.
    let is_raw = disk_info(layer).is_ok_and(|info| info.format == DiskFormat::Raw);
    Reply::Written { bytes, is_raw }
}

/// The layers that came, by their paths.
struct Layers<'a> {
    files: Vec<(PathBuf, File)>,
    windows: &'a [Window],
}

impl LayoutDir for Layers<'_> {
    fn open(&self, relative: &Path) -> io::Result<Box<dyn Read>> {
        let mut known = self.files.iter().enumerate();
        let layer = known.find(|(_, (path, _))| path == relative);
        let (index, (_, file)) = layer.ok_or(io::ErrorKind::NotFound)?;
        if let Some(window) = self.windows.get(index) {
            return window.open(file);
        }
        let mut file = file.try_clone()?;
        file.rewind()?;
        Ok(Box::new(file))
    }
}
