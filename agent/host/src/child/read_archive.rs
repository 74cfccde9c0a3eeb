//! `kvmlet read-archive`: finds an image in an archive, for [`crate::container_disks`].
//!
//! Archives come from whoever wrote them. Standard input is a socket to the agent: a byte comes with the descriptor of
//! the archive, then a [`Request`] as JSON up to the end. To standard output goes one [`Reply`]. Everything else is given
//! up before the first byte of the archive is read.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use agent_images::oci::{ArchiveKind, ArchivedImage, OciLimits};
use serde::{Deserialize, Serialize};

use crate::failure::chain;
use crate::helpers;
use crate::image_defaults::ImageDefaults;
use agent_confined::{Bounds, confine, receive};

/// The hidden subcommand's name.
pub(crate) const SUBCOMMAND: &str = "read-archive";

const CPU_SECONDS: u64 = 60;

/// Which image of the archive.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) kind: ArchiveKind,
    pub(crate) reference: Option<String>,
    /// Go's word for the architecture.
    pub(crate) architecture: String,
    pub(crate) limits: OciLimits,
}

/// The answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// Its layers, where they are, and what its configuration says of machines.
    Found(Box<ArchivedImage>, ImageDefaults),
    /// Why there is none, with all causes.
    Refused(String),
}

pub(super) fn serve() -> io::Result<()> {
    let mut socket = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let archive = receive(&socket)?.pop().ok_or(io::ErrorKind::InvalidInput)?;
    let mut text = Vec::new();
    socket.read_to_end(&mut text)?;
    let request: Request = serde_json::from_slice(&text)?;
    confine(Bounds {
        address_space_bytes: helpers::READ_ARCHIVE.bytes,
        cpu_seconds: CPU_SECONDS,
        output_bytes: 0,
    })?;
    let Request {
        kind,
        reference,
        architecture,
        limits,
    } = request;
    let found = ArchivedImage::open(
        File::from(archive),
        kind,
        reference.as_deref(),
        &architecture,
        limits,
    );
    let reply = match found {
        Ok(image) => {
            let config = image.config.as_deref();
            let defaults = ImageDefaults::of_any(config.unwrap_or_default());
            Reply::Found(Box::new(image), defaults)
        }
        Err(error) => Reply::Refused(chain(&error)),
    };
    io::stdout().write_all(&serde_json::to_vec(&reply)?)
}
