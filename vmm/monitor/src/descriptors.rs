//! The descriptors of a frame, taken one by one by the fields that name them.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::{SFlag, fstat};

use crate::config::error::FieldError;

/// What a descriptor must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A regular file or a block device.
    Image,
    /// A character device.
    CharacterDevice,
    /// A stream socket that takes connections.
    Listener,
    /// A connected stream socket.
    Socket,
}

/// How it must be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Readable.
    Read,
    /// Writable.
    Write,
    /// Both.
    ReadWrite,
}

/// Descriptors that have not been taken yet.
pub struct Descriptors {
    slots: Vec<Option<OwnedFd>>,
}

impl Descriptors {
    /// All of a frame.
    pub fn new(descriptors: Vec<OwnedFd>) -> Self {
        Self {
            slots: descriptors.into_iter().map(Some).collect(),
        }
    }

    /// Takes the one that `field` names by `index`.
    pub fn take(
        &mut self,
        field: &str,
        index: u32,
        kind: Kind,
        access: Access,
    ) -> Result<OwnedFd, FieldError> {
        let count = self.slots.len();
        let slot = usize::try_from(index)
            .ok()
            .and_then(|index| self.slots.get_mut(index))
            .ok_or_else(|| {
                FieldError::new(
                    field,
                    format!("names descriptor {index}, but {count} came with the frame"),
                )
            })?;
        let descriptor = slot.take().ok_or_else(|| {
            FieldError::new(
                field,
                format!("names descriptor {index} for the second time"),
            )
        })?;
        check(&descriptor, kind, access).map_err(|rule| FieldError::new(field, rule))?;
        Ok(descriptor)
    }

    /// As [`Self::take`], as a file.
    pub fn take_file(
        &mut self,
        field: &str,
        index: u32,
        access: Access,
    ) -> Result<File, FieldError> {
        self.take(field, index, Kind::File, access).map(File::from)
    }

    /// The number of the first that no field named.
    pub fn first_unused(&self) -> Option<usize> {
        self.slots.iter().position(Option::is_some)
    }
}

fn check(descriptor: &OwnedFd, kind: Kind, access: Access) -> Result<(), String> {
    let status = fstat(descriptor).map_err(|errno| format!("cannot be examined: {errno}"))?;
    let format = SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT;
    let (fits, name) = match kind {
        Kind::File => (format == SFlag::S_IFREG, "a regular file"),
        Kind::Image => (
            format == SFlag::S_IFREG || format == SFlag::S_IFBLK,
            "a regular file or block device",
        ),
        Kind::CharacterDevice => (format == SFlag::S_IFCHR, "a character device"),
        Kind::Listener => (
            vmm_sys::stream::is_listening(descriptor).unwrap_or(false),
            "a listening stream socket",
        ),
        Kind::Socket => (format == SFlag::S_IFSOCK, "a socket"),
    };
    if !fits {
        return Err(format!("is not {name}"));
    }
    let flags = fcntl(descriptor.as_fd(), FcntlArg::F_GETFL)
        .map_err(|errno| format!("cannot be examined: {errno}"))?;
    let mode = OFlag::from_bits_truncate(flags) & OFlag::O_ACCMODE;
    let readable = mode == OFlag::O_RDONLY || mode == OFlag::O_RDWR;
    let writable = mode == OFlag::O_WRONLY || mode == OFlag::O_RDWR;
    match access {
        Access::Read if !readable => Err("is not opened for reading".to_owned()),
        Access::Write if !writable => Err("is not opened for writing".to_owned()),
        Access::ReadWrite if !(readable && writable) => {
            Err("is not opened for reading and writing".to_owned())
        }
        _ => Ok(()),
    }
}
