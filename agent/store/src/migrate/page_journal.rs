//! The journal of agents of format 3, which had pages in place of rows: what of the ledger's file it has is written there again.
//!
//! Such an agent empties it when it ends. After one that was killed, or lost its power, any of it may be missing from the file.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use redb::StorageBackend;
use redb::backends::FileBackend;

use crate::frames::{PREFIX_BYTES, frame_at};

/// The first sector of the ledger's file, by which the database finds all else. It is in each frame as it was before.
const HEAD_BYTES: usize = 512;
type Head = [u8; HEAD_BYTES];

const MAGIC: [u8; 8] = *b"kvmletJ1";
/// Magic, epoch and checksum.
const START_BYTES: usize = MAGIC.len() + 8 + 4;
/// Where the first frame is.
const FIRST: u64 = 4096;
/// In the place of a length: the file is as long as the offset says, and no bytes follow.
const SET_LENGTH: u32 = u32::MAX;

/// The journal of the ledger at `path`.
fn journal_of(path: &Path) -> PathBuf {
    path.with_added_extension("journal")
}

/// Writes to the ledger at `path` what its journal has, and removes the journal. One of another ledger is put aside.
///
/// # Errors
/// When the ledger is in use ([`io::ErrorKind::WouldBlock`]), or a file cannot be read or written.
pub(crate) fn recover(path: &Path) -> io::Result<()> {
    let name = journal_of(path);
    if !path.exists() || !name.exists() {
        return Ok(());
    }
    let mut options = OpenOptions::new();
    let ledger = options.read(true).write(true).open(path)?;
    // As the database does; the lock goes with the file.
    ledger.try_lock()?;
    let ledger = backend(ledger)?;
    let frames = frames(&backend(File::open(&name)?)?)?;
    if !are_of(&frames, &head_of(&ledger)?) {
        return std::fs::rename(&name, name.with_added_extension("unused"));
    }
    for change in frames.iter().flat_map(|frame| changes(frame)) {
        write_again(&ledger, change)?;
    }
    ledger.sync_data()?;
    std::fs::remove_file(name)
}

fn backend(file: File) -> io::Result<FileBackend> {
    FileBackend::new(file).map_err(io::Error::other)
}

/// One change of the file.
#[derive(Clone, Copy)]
enum Change<'a> {
    Write(u64, &'a [u8]),
    SetLength(u64),
}

/// All frames of a journal, in their order.
fn frames(journal: &FileBackend) -> io::Result<Vec<Vec<u8>>> {
    let mut frames = Vec::new();
    let mut start = [0; START_BYTES];
    if journal.len()? < FIRST {
        return Ok(frames);
    }
    journal.read(0, &mut start)?;
    let Some(epoch) = epoch_of(&start) else {
        return Ok(frames);
    };
    let mut offset = FIRST;
    while let Some(frame) = frame_at(journal, offset, (epoch, frames.len() as u64))? {
        offset += frame.len() as u64;
        frames.push(frame);
    }
    Ok(frames)
}

/// The epoch of a journal that begins so; `None` when it was never written as a whole.
fn epoch_of(start: &[u8; START_BYTES]) -> Option<u64> {
    let (fields, checksum) = start.split_last_chunk()?;
    let epoch = fields.strip_prefix(&MAGIC)?;
    let is_whole = crc32fast::hash(fields) == u32::from_le_bytes(*checksum);
    is_whole.then_some(u64::from_le_bytes(epoch.try_into().ok()?))
}

/// The head before a frame, and the changes behind it.
fn split(frame: &[u8]) -> Option<(&Head, &[u8])> {
    frame.get(PREFIX_BYTES..)?.split_first_chunk()
}

fn changes(frame: &[u8]) -> impl Iterator<Item = Change<'_>> {
    let mut rest = split(frame).map_or(&[][..], |(_, changes)| changes);
    std::iter::from_fn(move || {
        let (offset, more) = rest.split_first_chunk()?;
        let (length, more) = more.split_first_chunk()?;
        let (offset, length) = (u64::from_le_bytes(*offset), u32::from_le_bytes(*length));
        if length == SET_LENGTH {
            rest = more;
            return Some(Change::SetLength(offset));
        }
        let (data, more) = more.split_at_checked(usize::try_from(length).ok()?)?;
        rest = more;
        Some(Change::Write(offset, data))
    })
}

/// The first sector of a file; zeros where it is shorter.
fn head_of(file: &FileBackend) -> io::Result<Head> {
    let mut head = [0; HEAD_BYTES];
    let length = usize::try_from(file.len()?).unwrap_or(HEAD_BYTES);
    if let Some(start) = head.get_mut(..length.min(HEAD_BYTES)) {
        file.read(0, start)?;
    }
    Ok(head)
}

/// Whether a file with this head is the one whose changes are in the frames. It has none of them yet, or some, or all: the head
/// reached the file after its frame was on disk. The head of any other file is in no frame: it was put back from a copy.
fn are_of(frames: &[Vec<u8>], head: &Head) -> bool {
    let is_known = |frame: &Vec<u8>| {
        let Some((before, _)) = split(frame) else {
            return false;
        };
        let mut after = *before;
        for change in changes(frame) {
            change_head(&mut after, change);
        }
        before == head || &after == head
    };
    frames.is_empty() || frames.iter().any(is_known)
}

/// What a change does to the head.
fn change_head(head: &mut Head, change: Change<'_>) {
    let Change::Write(offset, data) = change else {
        return;
    };
    let start = usize::try_from(offset).map_or(HEAD_BYTES, |start| start.min(HEAD_BYTES));
    let place = head.get_mut(start..).unwrap_or_default().iter_mut();
    place.zip(data).for_each(|(place, byte)| *place = *byte);
}

fn write_again(ledger: &FileBackend, change: Change<'_>) -> io::Result<()> {
    match change {
        Change::Write(offset, data) => {
            let end = offset.saturating_add(data.len() as u64);
            if ledger.len()? < end {
                ledger.set_len(end)?;
            }
            ledger.write(offset, data)
        }
        Change::SetLength(length) => ledger.set_len(length),
    }
}
