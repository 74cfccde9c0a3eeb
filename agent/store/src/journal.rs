//! The journal: what transactions wrote to the file of the ledger, one frame for each sync, one after the other.
//!
//! A commit of the database changes pages all over its file, and a disk takes each of them for a request of its own. The same
//! bytes in one piece take one request and one flush. A frame counts once it is on disk as a whole: its checksum says so.
//! Frames that are no longer needed stay where they are; a new epoch makes them void.

use std::io;

use redb::StorageBackend;

/// The first sector of the ledger's file. It says which pages count, and is whole or not written at all.
pub(crate) const HEAD_BYTES: usize = 512;
pub(crate) type Head = [u8; HEAD_BYTES];

/// What the journal begins with.
const MAGIC: [u8; 8] = *b"kvmletJ1";
/// Where the first frame is.
const FIRST: u64 = 4096;
/// Checksum, length of what follows, epoch and number within it.
const PREFIX_BYTES: usize = 4 + 4 + 8 + 8;

/// Bytes of one frame at most. What writes more is not worth a journal.
pub(crate) const FRAME_BYTES: usize = 1 << 20;
/// Bytes of the journal at most.
pub(crate) const JOURNAL_BYTES: u64 = 16 << 20;

/// Offset and length of a change, before its bytes.
pub(crate) const CHANGE_BYTES: usize = 8 + 4;

/// A frame's memory is kept for the next one up to so many bytes.
const KEPT_BYTES: usize = 256 << 10;

/// In the place of a length: the file is that long, and no bytes follow.
const SET_LENGTH: u32 = u32::MAX;

/// One change of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// Bytes at an offset.
    Write(u64, &'a [u8]),
    /// The file has so many bytes.
    SetLength(u64),
}

/// What was written between two syncs.
#[derive(Debug)]
pub(crate) struct Frame {
    before: Head,
    /// All of it as it is in the journal.
    bytes: Vec<u8>,
}

impl Frame {
    /// Nothing, after `before`.
    pub(crate) fn after(before: &Head) -> Self {
        Self::in_place_of(None, before)
    }

    /// The same, in the memory of a frame that is no longer needed.
    pub(crate) fn in_place_of(used: Option<Self>, before: &Head) -> Self {
        let mut bytes = used.map(|used| used.bytes).unwrap_or_default();
        bytes.clear();
        bytes.shrink_to(KEPT_BYTES);
        bytes.extend_from_slice(&[0; PREFIX_BYTES]);
        bytes.extend_from_slice(before);
        Self {
            before: *before,
            bytes,
        }
    }

    /// The frame that these bytes are.
    fn read(bytes: Vec<u8>) -> Option<Self> {
        let before = bytes.get(PREFIX_BYTES..)?.first_chunk()?;
        Some(Self {
            before: *before,
            bytes,
        })
    }

    pub(crate) const fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn add(&mut self, change: Change<'_>) {
        let (at, length, data) = match change {
            // A write of as much is none of a page.
            Change::Write(at, data) => (at, u32::try_from(data.len()).unwrap_or(0), data),
            Change::SetLength(length) => (length, SET_LENGTH, &[][..]),
        };
        self.bytes.extend_from_slice(&at.to_le_bytes());
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(data);
    }

    /// The file's head before the frame.
    pub(crate) const fn before(&self) -> &Head {
        &self.before
    }

    /// What it changes, in that order.
    pub(crate) fn changes(&self) -> impl Iterator<Item = Change<'_>> {
        let mut rest = self
            .bytes
            .get(PREFIX_BYTES + HEAD_BYTES..)
            .unwrap_or_default();
        std::iter::from_fn(move || {
            let (at, more) = rest.split_first_chunk()?;
            let (length, more) = more.split_first_chunk()?;
            let (at, length) = (u64::from_le_bytes(*at), u32::from_le_bytes(*length));
            if length == SET_LENGTH {
                rest = more;
                return Some(Change::SetLength(at));
            }
            let (data, more) = more.split_at_checked(usize::try_from(length).ok()?)?;
            rest = more;
            Some(Change::Write(at, data))
        })
    }

    fn finish(&mut self, epoch: u64, number: u64) {
        let prefix = prefix_of(&self.bytes, epoch, number);
        if let Some(place) = self.bytes.first_chunk_mut() {
            *place = prefix;
        }
    }
}

/// What a frame of these bytes begins with.
fn prefix_of(bytes: &[u8], epoch: u64, number: u64) -> [u8; PREFIX_BYTES] {
    let mut prefix = [0; PREFIX_BYTES];
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let (sum, said) = prefix.split_at_mut(4);
    let fields = length.to_le_bytes().into_iter();
    let fields = fields
        .chain(epoch.to_le_bytes())
        .chain(number.to_le_bytes());
    said.iter_mut()
        .zip(fields)
        .for_each(|(place, byte)| *place = byte);
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(said);
    hasher.update(bytes.get(PREFIX_BYTES..).unwrap_or_default());
    sum.copy_from_slice(&hasher.finalize().to_le_bytes());
    prefix
}

/// The journal's own file.
#[derive(Debug)]
pub(crate) struct Journal<J> {
    file: J,
    /// Of the frames that count; `None` before there can be any.
    epoch: Option<u64>,
    /// Frames of this epoch.
    frames: u64,
    /// Where the next frame goes.
    end: u64,
    /// A frame may be there that could not be synced.
    is_spoiled: bool,
}

impl<J: StorageBackend> Journal<J> {
    /// A journal with what is there of it. Nothing is written, so that it opens on a full disk, too. Frames are looked at by
    /// [`Self::replay`] alone.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn open(file: J) -> io::Result<Self> {
        let mut start = [0; MAGIC.len() + 8 + 4];
        let mut epoch = None;
        if file.len()? >= FIRST {
            file.read(0, &mut start)?;
            epoch = epoch_of(&start);
        }
        Ok(Self {
            file,
            epoch,
            frames: 0,
            end: FIRST,
            is_spoiled: false,
        })
    }

    /// Makes all frames void. They must be in the ledger's file, and that on disk.
    ///
    /// # Errors
    /// When the journal is not known to be on disk.
    pub(crate) fn reset(&mut self) -> io::Result<()> {
        if self.epoch.is_none() {
            // Frames of an epoch that is not known any more might be of the one that begins.
            self.file.set_len(0)?;
            self.file.set_len(FIRST)?;
        }
        let epoch = self.epoch.unwrap_or_default().wrapping_add(1);
        let mut start = MAGIC.to_vec();
        start.extend_from_slice(&epoch.to_le_bytes());
        start.extend_from_slice(&crc32fast::hash(&start).to_le_bytes());
        self.file.write(0, &start)?;
        self.file.sync_data()?;
        (self.epoch, self.frames, self.end) = (Some(epoch), 0, FIRST);
        self.is_spoiled = false;
        Ok(())
    }

    /// Whether a frame of so many bytes has room.
    pub(crate) const fn has_room(&self, bytes: usize) -> bool {
        self.end.saturating_add(bytes as u64) <= JOURNAL_BYTES
    }

    /// Whether no frame can count.
    pub(crate) const fn is_empty(&self) -> bool {
        self.frames == 0 && !self.is_spoiled
    }

    /// Puts a frame behind the others, on disk.
    ///
    /// # Errors
    /// When it is not known to be there. [`Self::reset`] must come before a further one.
    pub(crate) fn append(&mut self, frame: &mut Frame) -> io::Result<()> {
        let Some(epoch) = self.epoch else {
            self.reset()?;
            return self.append(frame);
        };
        frame.finish(epoch, self.frames);
        let end = self.end + frame.bytes.len() as u64;
        self.is_spoiled = true;
        if self.file.len()? < end {
            self.file.set_len(end)?;
        }
        self.file.write(self.end, &frame.bytes)?;
        self.file.sync_data()?;
        self.is_spoiled = false;
        self.frames += 1;
        self.end = end;
        Ok(())
    }

    /// Looks at the frames in turn. Further ones go behind them.
    ///
    /// # Errors
    /// When one cannot be read, and those of `each`.
    pub(crate) fn replay(
        &mut self,
        mut each: impl FnMut(&Frame) -> io::Result<()>,
    ) -> io::Result<()> {
        (self.frames, self.end) = (0, FIRST);
        while let Some(frame) = self.next_frame()? {
            each(&frame)?;
            self.frames += 1;
            self.end += frame.bytes.len() as u64;
        }
        Ok(())
    }

    /// The frame behind the last one, if it is there as a whole.
    fn next_frame(&self) -> io::Result<Option<Frame>> {
        let Some(epoch) = self.epoch else {
            return Ok(None);
        };
        let there = self.file.len()?.saturating_sub(self.end);
        let mut prefix = [0; PREFIX_BYTES];
        if there < PREFIX_BYTES as u64 {
            return Ok(None);
        }
        self.file.read(self.end, &mut prefix)?;
        let [_, _, _, _, a, b, c, d, ..] = prefix;
        let length = u32::from_le_bytes([a, b, c, d]);
        let fits = (PREFIX_BYTES + HEAD_BYTES..=FRAME_BYTES).contains(&(length as usize));
        if !fits || u64::from(length) > there {
            return Ok(None);
        }
        let mut bytes = vec![0; length as usize];
        self.file.read(self.end, &mut bytes)?;
        if bytes.get(..PREFIX_BYTES) != Some(&prefix_of(&bytes, epoch, self.frames)[..]) {
            return Ok(None);
        }
        Ok(Frame::read(bytes))
    }

    /// Closes the file.
    ///
    /// # Errors
    /// Those of the file.
    pub(crate) fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}

/// The epoch of a journal that begins so; `None` when it was never written as a whole.
fn epoch_of(start: &[u8]) -> Option<u64> {
    let (said, sum) = start.split_last_chunk()?;
    let epoch = said.strip_prefix(&MAGIC)?;
    let is_whole = crc32fast::hash(said) == u32::from_le_bytes(*sum);
    is_whole.then_some(u64::from_le_bytes(epoch.try_into().ok()?))
}
