//! A snapshot as one file: a head with everything but RAM, then RAM as an image with holes.
//!
//! The head is written last, so a file whose writer did not finish is none.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use proto_vmm::payload::{self, PAYLOAD_HEADER_BYTES, PayloadError};
use proto_vmm::v1;
use vmm_devices::Payload;
use vmm_machine::{GuestRam, Restore, Section, Snapshot, load_ram, ram_bytes, save_ram};

/// RAM begins at a multiple of this, so that it can be read and mapped by pages.
const RAM_ALIGN: u64 = 4096;

/// A file is no snapshot of this program's.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotFileError {
    /// It can not be read.
    #[error("it can not be read")]
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
    };
    let longest = payload::encode_snapshot(&head).len() as u64;
    head.ram_offset = longest.next_multiple_of(RAM_ALIGN);
    // RAM's holes are not written: nothing may shine through them, whatever we were handed.
    file.set_len(0)?;
    save_ram(ram, file, head.ram_offset)?;
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
    let head = payload::decode_snapshot(&bytes)?;
    if head.ram_bytes != ram_bytes {
        return Err(SnapshotFileError::RamSize {
            found: head.ram_bytes,
            wanted: ram_bytes,
        });
    }
    Ok(Restore {
        snapshot: Snapshot {
            sections: head.sections.into_iter().map(from_wire).collect(),
        },
        fill_ram: Box::new(move |ram| load_ram(ram, &file, head.ram_offset)),
    })
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
