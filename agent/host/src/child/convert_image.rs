//! `kvmlet convert-image`: reads disk images that strangers wrote, for [`crate::disk_images`].
//!
//! Standard input is a socket to the process that started this one. A byte comes with all descriptors:
//! for a conversion that of the disk first, then those of the images, the one on top first; then a
//! [`Request`] as JSON up to the end. Back go [`Reply`]s as JSON, a line each. Everything else is given
//! up before the first byte of an image is read.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use agent_images::disk::{
    ConvertLimits, Converted, DiskError, DiskFormat, DiskInfo, Layer, convert, disk_info,
};
use serde::{Deserialize, Serialize};

use super::sparse_file::SparseFile;
use crate::failure::chain;
use crate::helpers;
use agent_confined::{Bounds, confine_with, receive};

/// The hidden subcommand's name.
pub(crate) const SUBCOMMAND: &str = "convert-image";

/// Between two words about progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Write the disk that the images are.
    Convert,
    /// Say what the one image is.
    Info,
}

/// What is to be done with the descriptors.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) task: Task,
    /// Of each image what it is called and which format it has.
    pub(crate) images: Vec<(String, Option<DiskFormat>)>,
    pub(crate) limits: ConvertLimits,
    /// What has to stay free of the disk's file system.
    pub(crate) reserve_bytes: u64,
    pub(crate) cpu_seconds: u64,
}

/// A line back.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// So many bytes of so many are done.
    Progress(u64, u64),
    /// All is written.
    Converted(Converted),
    /// Format and size of an image.
    Info(DiskInfo),
    /// It cannot be done.
    Refused {
        /// Why, with all causes.
        message: String,
        /// Whether the file system of the disk is full.
        is_full: bool,
    },
}

pub(super) fn serve() -> io::Result<()> {
    let mut socket = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut descriptors = receive(&socket)?.into_iter();
    let mut text = Vec::new();
    socket.read_to_end(&mut text)?;
    let request: Request = serde_json::from_slice(&text)?;
    let bounds = Bounds {
        address_space_bytes: helpers::CONVERT_IMAGE.bytes,
        cpu_seconds: request.cpu_seconds,
        output_bytes: request.limits.output_bytes,
    };
    confine_with(bounds, &[nix::libc::SYS_fstatfs])?;
    let output = match request.task {
        Task::Convert => descriptors
            .next()
            .map(|output| SparseFile::new(File::from(output), request.reserve_bytes)),
        Task::Info => None,
    };
    let layers = request
        .images
        .iter()
        .zip(descriptors)
        .map(|((name, format), descriptor)| Layer {
            name: name.clone(),
            reader: Box::new(File::from(descriptor)),
            format: *format,
        })
        .collect();
    let done = carry_out(layers, output, &request.limits, &mut socket);
    send_reply(&mut socket, &done.unwrap_or_else(|error| refused(&error)))
}

fn carry_out(
    mut layers: Vec<Layer>,
    output: Option<SparseFile>,
    limits: &ConvertLimits,
    socket: &mut File,
) -> Result<Reply, DiskError> {
    let Some(mut output) = output else {
        return match layers.pop() {
            Some(layer) => disk_info(layer).map(Reply::Info),
            None => Ok(Reply::Refused {
                message: "no image was handed over".to_owned(),
                is_full: false,
            }),
        };
    };
    let mut reported_at = Instant::now();
    let mut progress = |done, total| {
        if reported_at.elapsed() >= PROGRESS_EVERY {
            reported_at = Instant::now();
            // When nobody listens any more, this process ends by itself.
            drop(send_reply(socket, &Reply::Progress(done, total)));
        }
    };
    convert(layers, &mut output, limits, &mut progress).map(Reply::Converted)
}

fn refused(error: &DiskError) -> Reply {
    let is_full = match error {
        DiskError::Write { source, .. } => matches!(
            source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        ),
        _ => false,
    };
    Reply::Refused {
        message: chain(error),
        is_full,
    }
}

fn send_reply(socket: &mut File, reply: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    socket.write_all(&line)
}
