//! The file of an image, read at offsets that are inside of it.

use std::fmt;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use super::error::DiskError;
use super::format::{DiskFormat, index};

/// Bytes that can be read anywhere.
pub trait ReadAt {
    /// Reads some bytes at `offset`; 0 at the end.
    ///
    /// # Errors
    /// Those of the medium.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Length in bytes.
    ///
    /// # Errors
    /// Those of the medium.
    fn size(&self) -> io::Result<u64>;
}

impl ReadAt for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    /// Of block devices, too.
    fn size(&self) -> io::Result<u64> {
        let mut file = self;
        file.seek(SeekFrom::End(0))
    }
}

/// An image in memory.
impl ReadAt for Vec<u8> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = self.get(index(offset)..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..count), rest.get(..count)) {
            to.copy_from_slice(from);
        }
        Ok(count)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}

/// One image of a chain, as the caller hands it over.
pub struct Layer {
    /// What it is called in messages.
    pub name: String,
    /// Its bytes.
    pub reader: Box<dyn ReadAt>,
    /// Its format. Without one, what the image above says of it counts, and else its first bytes.
    pub format: Option<DiskFormat>,
}

impl fmt::Debug for Layer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Layer")
            .field("name", &self.name)
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

/// An image's file with its size, which is asked for once.
pub(super) struct Source {
    pub(super) name: String,
    reader: Box<dyn ReadAt>,
    pub(super) bytes: u64,
}

impl Source {
    pub(super) fn new(name: String, reader: Box<dyn ReadAt>) -> Result<Self, DiskError> {
        match reader.size() {
            Ok(bytes) => Ok(Self {
                name,
                reader,
                bytes,
            }),
            Err(source) => Err(DiskError::Read {
                image: name,
                offset: 0,
                source,
            }),
        }
    }

    /// Fails unless `length` bytes at `offset` are inside of the file.
    pub(super) fn holds(
        &self,
        what: fmt::Arguments<'_>,
        offset: u64,
        length: u64,
    ) -> Result<(), DiskError> {
        match offset.checked_add(length) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(DiskError::Outside {
                image: self.name.clone(),
                what: what.to_string(),
                offset,
                length,
                file: self.bytes,
            }),
        }
    }

    /// Fills `buffer` from `offset` on. `what` is for the message when that is not inside of the file.
    pub(super) fn read(
        &self,
        what: fmt::Arguments<'_>,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(), DiskError> {
        self.holds(what, offset, buffer.len() as u64)?;
        let mut at = offset;
        let mut rest = buffer;
        while !rest.is_empty() {
            let result = match self.reader.read_at(rest, at) {
                Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other,
            };
            let count = result.map_err(|source| DiskError::Read {
                image: self.name.clone(),
                offset: at,
                source,
            })?;
            at += count as u64;
            rest = rest.get_mut(count..).unwrap_or_default();
        }
        Ok(())
    }

    /// Up to `count` bytes at `offset`; fewer at the end of the file.
    pub(super) fn read_up_to(&self, offset: u64, count: u64) -> Result<Vec<u8>, DiskError> {
        let there = self.bytes.saturating_sub(offset).min(count);
        let mut buffer = vec![0; index(there)];
        self.read(format_args!("what was there"), offset, &mut buffer)?;
        Ok(buffer)
    }

    /// The error of an image that contradicts itself.
    pub(super) fn damaged(&self, what: fmt::Arguments<'_>) -> DiskError {
        DiskError::Damaged {
            image: self.name.clone(),
            what: what.to_string(),
        }
    }
}
