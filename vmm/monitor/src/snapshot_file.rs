//! A snapshot as one file: a head with everything but RAM, then RAM as an image with holes.
//!
//! The head is written last, when RAM is on disk, so a file whose writer did not finish is none. It has a
//! checksum of each chunk of RAM, which is checked before a machine is made of the chunk.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use proto_vmm::payload::{self, PAYLOAD_HEADER_BYTES, PayloadError};
use proto_vmm::v1;
use vmm_devices::Payload;
use vmm_machine::{
    GuestRam, RAM_CHUNK_BYTES, Restore, Section, Snapshot, load_ram, ram_bytes, ram_checksum_count,
    save_ram,
};

/// RAM begins at a multiple of this, so that it can be read and mapped by pages.
const RAM_ALIGN: u64 = 4096;

/// The version of the format that had no checksums of RAM.
const WITHOUT_CHECKSUMS: u32 = 1;

/// A file is no snapshot of this program's.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotFileError {
    /// It cannot be read.
    #[error("it cannot be read")]
    Read(#[from] io::Error),
    /// Its head is none.
    #[error("its head is wrong")]
    Head(#[from] PayloadError),
    /// Its RAM is not of this machine.
    #[error("it holds {found} bytes of RAM, but the machine has {wanted}")]
    RamSize {
        /// In the file.
        found: u64,
        /// As configured.
        wanted: u64,
    },
    /// Its RAM cannot be checked.
    #[error(
        "it has {count} checksums of {chunk_bytes} bytes of RAM each, which is not what its RAM needs"
    )]
    Checksums {
        /// Number of checksums in the file.
        count: usize,
        /// Bytes of RAM that one checksum covers.
        chunk_bytes: u64,
    },
}

/// Writes `snapshot` and `ram` to `file` and waits until they are on disk.
///
/// # Errors
/// Those of the file.
pub fn write(file: &File, snapshot: &Snapshot, ram: &GuestRam) -> io::Result<()> {
    let mut head = v1::Snapshot {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        sections: snapshot.sections.iter().map(to_wire).collect(),
        // As long as the true one, whose length is not known yet.
        ram_offset: u64::MAX,
        ram_bytes: ram_bytes(ram),
        ram_chunk_bytes: RAM_CHUNK_BYTES,
        ram_checksums: vec![0; checksum_count(ram_bytes(ram))?],
    };
    let longest = payload::encode_snapshot(&head).len() as u64;
    head.ram_offset = longest.next_multiple_of(RAM_ALIGN);
    // RAM's holes are not written: nothing may shine through them, whatever we were handed.
    file.set_len(0)?;
    head.ram_checksums = save_ram(ram, file, head.ram_offset)?;
    file.sync_data()?;
    file.write_all_at(&payload::encode_snapshot(&head), 0)?;
    file.sync_all()
}

/// Reads the head of `file` and promises its RAM.
///
/// # Errors
/// See [`SnapshotFileError`].
pub fn read(file: File, ram_bytes: u64) -> Result<Restore, SnapshotFileError> {
    let mut bytes = vec![0; PAYLOAD_HEADER_BYTES];
    file.read_exact_at(&mut bytes, 0)?;
    bytes.resize(payload::snapshot_head_bytes(&bytes)?, 0);
    file.read_exact_at(&mut bytes, 0)?;
    let (version, head) = payload::decode_versioned_snapshot(&bytes)?;
    if head.ram_bytes != ram_bytes {
        return Err(SnapshotFileError::RamSize {
            found: head.ram_bytes,
            wanted: ram_bytes,
        });
    }
    let checksums = match version {
        WITHOUT_CHECKSUMS => None,
        _ if head.ram_chunk_bytes != RAM_CHUNK_BYTES
            || head.ram_checksums.len() != checksum_count(ram_bytes)? =>
        {
            return Err(SnapshotFileError::Checksums {
                count: head.ram_checksums.len(),
                chunk_bytes: head.ram_chunk_bytes,
            });
        }
        _ => Some(head.ram_checksums),
    };
    Ok(Restore {
        snapshot: Snapshot {
            sections: head.sections.into_iter().map(from_wire).collect(),
        },
        fill_ram: Box::new(move |ram| load_ram(ram, &file, head.ram_offset, checksums.as_deref())),
    })
}

fn checksum_count(ram_bytes: u64) -> io::Result<usize> {
    usize::try_from(ram_checksum_count(ram_bytes)).map_err(io::Error::other)
}

fn to_wire(section: &Section) -> v1::SnapshotSection {
    let Payload {
        kind,
        version,
        bytes,
    } = section.payload.clone();
    v1::SnapshotSection {
        name: section.name.clone(),
        kind,
        version,
        content: bytes,
    }
}

fn from_wire(section: v1::SnapshotSection) -> Section {
    Section {
        name: section.name,
        payload: Payload {
            kind: section.kind,
            version: section.version,
            bytes: section.content,
        },
    }
}
