//! `kvmlet read-layers`: takes one file out of the layers of an image, for [`crate::kernels`].
//!
//! Layers come from whoever wrote the image, and are packed archives in archives. Standard input is a
//! socket to the agent: a byte comes with all descriptors, that of the new file first, then those of the
//! layers, the lowest first; then a [`Request`] as JSON up to the end. To standard output goes one
//! [`Reply`]. Of each layer no more is read than its size, from the start. Everything else is given up
//! before the first byte of a layer is read. Before it come lines, `[DONE,TOTAL]`, with the bytes of layers that were read so far.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use agent_images::disk::{DiskFormat, Layer, disk_info};
use agent_images::oci::{ImageFile, ImageManifest, LayoutDir, OciError, OciLimits, Window};
use serde::{Deserialize, Serialize};

use super::sparse_file::SparseFile;
use crate::failure::chain;
use crate::helpers;
use agent_confined::{Bounds, confine_with, receive};

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
    let files = request.manifest.layer_paths().zip(descriptors).collect();
    let layers = Layers::new(files, &request.windows)?;
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

/// Bytes of layers between two words about progress.
const PROGRESS_EVERY: u64 = 8 << 20;

/// How much of all layers was read. What is read again counts once.
struct Counter {
    total: u64,
    /// How far each was read.
    furthest: RefCell<Vec<u64>>,
    done: Cell<u64>,
    reported: Cell<u64>,
}

impl Counter {
    fn new(sizes: &[u64]) -> Self {
        Self {
            total: sizes.iter().copied().fold(0, u64::saturating_add),
            furthest: RefCell::new(vec![0; sizes.len()]),
            done: Cell::new(0),
            reported: Cell::new(0),
        }
    }

    /// One layer was read up to there. Returns how much is done of how much when that is worth a message.
    fn reached(&self, layer: usize, at: u64) -> Option<(u64, u64)> {
        let mut furthest = self.furthest.borrow_mut();
        let before = furthest.get_mut(layer)?;
        let more = at.checked_sub(*before)?;
        *before = at;
        let done = self.done.get().saturating_add(more);
        self.done.set(done);
        (done - self.reported.get() >= PROGRESS_EVERY).then(|| {
            self.reported.set(done);
            (done, self.total)
        })
    }
}

/// Tells how far its layer was read.
struct CountedLayer {
    reader: Box<dyn Read>,
    counter: Rc<Counter>,
    layer: usize,
    at: u64,
}

impl Read for CountedLayer {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.at = self.at.saturating_add(count as u64);
        if let Some((done, total)) = self.counter.reached(self.layer, self.at) {
            writeln!(io::stdout(), "[{done},{total}]")?;
        }
        Ok(count)
    }
}

/// The layers that came, by their paths.
struct Layers<'a> {
    files: Vec<(PathBuf, File)>,
    windows: &'a [Window],
    counter: Rc<Counter>,
}

impl<'a> Layers<'a> {
    fn new(files: Vec<(PathBuf, File)>, windows: &'a [Window]) -> io::Result<Self> {
        let sizes = files
            .iter()
            .enumerate()
            .map(|(layer, (_, file))| match windows.get(layer) {
                Some(window) => Ok(window.size),
                None => file.metadata().map(|metadata| metadata.len()),
            });
        let sizes = sizes.collect::<io::Result<Vec<u64>>>()?;
        Ok(Self {
            files,
            windows,
            counter: Rc::new(Counter::new(&sizes)),
        })
    }
}

impl LayoutDir for Layers<'_> {
    fn open(&self, relative: &Path) -> io::Result<Box<dyn Read>> {
        let mut known = self.files.iter().enumerate();
        let layer = known.find(|(_, (path, _))| path == relative);
        let (index, (_, file)) = layer.ok_or(io::ErrorKind::NotFound)?;
        let reader = match self.windows.get(index) {
            Some(window) => window.open(file)?,
            None => {
                let mut file = file.try_clone()?;
                file.rewind()?;
                Box::new(file)
            }
        };
        Ok(Box::new(CountedLayer {
            reader,
            counter: Rc::clone(&self.counter),
            layer: index,
            at: 0,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_of_layers_is_reported_now_and_then_and_counts_once() {
        const MIB: u64 = 1 << 20;
        let counter = Counter::new(&[10 * MIB, 20 * MIB]);
        assert_eq!(counter.reached(0, 7 * MIB), None);
        assert_eq!(counter.reached(0, 8 * MIB), Some((8 * MIB, 30 * MIB)));
        assert_eq!(counter.reached(0, 10 * MIB), None);
        // The same layer, for the file that was found in it.
        assert_eq!(counter.reached(0, 9 * MIB), None);
        assert_eq!(counter.reached(0, 10 * MIB), None);
        assert_eq!(counter.reached(1, 20 * MIB), Some((30 * MIB, 30 * MIB)));
        assert_eq!(counter.reached(2, 20 * MIB), None, "there is none");
    }
}
