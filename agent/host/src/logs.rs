//! What guests printed on their serial consoles.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes of the last read that are kept, to see that the log is still the same.
const TAIL_BYTES: usize = 1024;

/// Bytes that are looked through at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// Which run's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Run {
    /// That of the present VMM, or the last.
    Present,
    /// The one before: an earlier VMM's, or that of the last VMI of the same name that is gone.
    Previous,
}

/// A stretch of a guest's output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Printed {
    /// Where it begins in all that the guest printed, in bytes from 0; `None` when that is not known.
    pub offset: Option<u64>,
    /// Output of the serial console as the guest wrote it, control characters included.
    pub bytes: Vec<u8>,
}

/// The log of a run, read piece by piece: a client that reads slowly keeps a descriptor in the agent, and not the log.
///
/// The VMM of a guest that runs drops the log's older half in place when it is full. A reader notices that by the file's
/// length and by what stands before its place ([`Piece::Moved`]), and opens the log anew.
#[derive(Debug, Default)]
pub struct LogReader {
    /// Where it goes on in all that the guest printed, in bytes from 0; `None` when that is not known.
    pub offset: Option<u64>,
    file: Option<File>,
    /// The place in the file.
    next: u64,
    /// The file's length when it was opened.
    end: u64,
    /// What was read last.
    tail: Vec<u8>,
}

/// What comes next of a log.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes, at least one.
    Bytes(Vec<u8>),
    /// It was read to its end.
    End,
    /// The log has lost its older half since it was opened.
    Moved,
}

impl LogReader {
    /// The last `most` bytes of a file.
    ///
    /// # Errors
    /// When the file does not say how long it is.
    pub fn open(file: File, most: u64) -> io::Result<Self> {
        let end = file.metadata()?.len();
        Ok(Self {
            offset: None,
            file: Some(file),
            next: end.saturating_sub(most),
            end,
            tail: Vec::new(),
        })
    }

    /// Bytes that are left.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.end - self.next
    }

    /// Skips all but the last `most` bytes.
    pub fn keep_last(&mut self, most: u64) {
        let skipped = self.left().saturating_sub(most);
        self.next += skipped;
        self.offset = self.offset.map(|offset| offset + skipped);
        if skipped > 0 {
            self.tail.clear();
        }
    }

    /// The next piece, of `most` bytes at most.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(&mut self, most: usize) -> io::Result<Piece> {
        let Some(file) = self.file.as_ref().filter(|_| self.next < self.end) else {
            return Ok(Piece::End);
        };
        if file.metadata()?.len() < self.end {
            return Ok(Piece::Moved);
        }
        let wanted = usize::try_from(self.left()).unwrap_or(usize::MAX).min(most);
        let before = self.tail.len();
        let mut bytes = vec![0; before + wanted];
        match file.read_exact_at(&mut bytes, self.next - before as u64) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Piece::Moved),
            read => read?,
        }
        if !bytes.starts_with(&self.tail) {
            return Ok(Piece::Moved);
        }
        self.next += wanted as u64;
        self.offset = self.offset.map(|offset| offset + wanted as u64);
        let surplus = bytes.len().saturating_sub(TAIL_BYTES);
        self.tail = bytes.get(surplus..).unwrap_or_default().to_vec();
        bytes.drain(..before);
        Ok(Piece::Bytes(bytes))
    }

    /// Goes on behind what was sent last, `tail`: `sent` bytes after this place if it stands before that, else where it is
    /// found first. Where it is not found, more was printed since than is kept, and the log is read from this place on.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn resume(&mut self, sent: Option<u64>, tail: &[u8]) -> io::Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let expected = sent.and_then(|sent| self.next.checked_add(sent));
        if let Some(place) = expected.filter(|place| *place <= self.end)
            && stands_before(file, place, tail)?
        {
            self.next = place;
        } else if let Some(place) = find_end(file, (self.next, self.end), tail)? {
            self.next = place;
        }
        self.offset = None;
        Ok(())
    }
}

fn stands_before(file: &File, place: u64, tail: &[u8]) -> io::Result<bool> {
    let Some(from) = place.checked_sub(tail.len() as u64) else {
        return Ok(false);
    };
    let mut bytes = vec![0; tail.len()];
    file.read_exact_at(&mut bytes, from)?;
    Ok(bytes == tail)
}

/// The place after the first occurrence of `tail`.
fn find_end(file: &File, (mut from, end): (u64, u64), tail: &[u8]) -> io::Result<Option<u64>> {
    if tail.is_empty() {
        return Ok(None);
    }
    while from < end {
        // Chunks overlap, so that none cuts what is looked for in two.
        let wanted = (end - from).min((CHUNK_BYTES + tail.len()) as u64);
        let mut bytes = vec![0; usize::try_from(wanted).unwrap_or(CHUNK_BYTES)];
        file.read_exact_at(&mut bytes, from)?;
        let found = bytes.windows(tail.len()).position(|window| window == tail);
        if let Some(found) = found {
            return Ok(Some(from + (found + tail.len()) as u64));
        }
        from += CHUNK_BYTES as u64;
    }
    Ok(None)
}

/// Why there is no output.
#[derive(Debug, thiserror::Error)]
pub enum LogsError {
    /// Nothing is kept of such a run.
    #[error("{0}")]
    NothingKept(&'static str),
    /// No VMM runs.
    #[error("the guest is not running")]
    NotRunning,
    /// The file cannot be read.
    #[error("the console log cannot be read")]
    Unreadable(#[source] std::io::Error),
    /// The VMM did not answer.
    #[error("the VMM did not tell what its guest printed: {0}")]
    Vmm(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &[u8]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(text, 0).unwrap();
        file
    }

    fn all(reader: &mut LogReader, most: usize) -> (Vec<u8>, Piece) {
        let mut read = Vec::new();
        loop {
            match reader.read(most).unwrap() {
                Piece::Bytes(bytes) => {
                    assert!(bytes.len() <= most);
                    read.extend(bytes);
                }
                other => return (read, other),
            }
        }
    }

    #[test]
    fn a_log_is_read_in_pieces_from_any_place_to_the_end_that_it_had() {
        let text: Vec<u8> = (0..5000u32).flat_map(u32::to_le_bytes).collect();
        let log = file(&text);
        let mut reader = LogReader::open(log.try_clone().unwrap(), 19_000).unwrap();
        reader.offset = Some(1000);
        log.write_all_at(b"later", text.len() as u64).unwrap();
        assert_eq!(all(&mut reader, 700), (text[1000..].to_vec(), Piece::End));
        assert_eq!(reader.offset, Some(20_000));
        let mut reader = LogReader::open(log, 1 << 20).unwrap();
        reader.keep_last(7);
        assert_eq!(
            all(&mut reader, 700),
            ([&text[19_998..], b"later"].concat(), Piece::End)
        );
        assert_eq!(all(&mut LogReader::default(), 9), (Vec::new(), Piece::End));
    }

    #[test]
    fn a_log_that_lost_its_older_half_is_noticed_and_gone_on_with() {
        let text: Vec<u8> = (0..5000u32).flat_map(u32::to_le_bytes).collect();
        for grown_again in [false, true] {
            let log = file(&text);
            let mut reader = LogReader::open(log.try_clone().unwrap(), 1 << 20).unwrap();
            let Piece::Bytes(printed) = reader.read(12_000).unwrap() else {
                panic!("there is something");
            };
            // As the VMM does it.
            log.write_all_at(&text[10_000..], 0).unwrap();
            log.set_len(10_000).unwrap();
            if grown_again {
                log.write_all_at(&text[..10_500], 10_000).unwrap();
            }
            assert_eq!(reader.read(100).unwrap(), Piece::Moved);
            let tail = &printed[printed.len() - TAIL_BYTES..];
            for expected in [None, Some(2000), Some(77)] {
                let mut reader = LogReader::open(log.try_clone().unwrap(), 1 << 20).unwrap();
                reader.resume(expected, tail).unwrap();
                let (rest, end) = all(&mut reader, 4096);
                assert!(rest.starts_with(&text[12_000..]) && end == Piece::End);
            }
            let mut reader = LogReader::open(log, 1 << 20).unwrap();
            reader.resume(Some(5), b"never printed").unwrap();
            assert!(all(&mut reader, 4096).0.starts_with(&text[10_000..]));
        }
    }
}
