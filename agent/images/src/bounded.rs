//! Readers and writers that refuse to go on beyond a limit.

use std::io::{self, Read, Write};

/// Counts what goes through and fails as soon as the limit would be exceeded.
#[derive(Debug)]
pub(crate) struct BoundedWriter<W> {
    inner: W,
    written_bytes: u64,
    limit_bytes: u64,
}

/// Marks the error that means "the limit was reached", whatever decoder passed it on.
#[derive(Debug, thiserror::Error)]
#[error("the limit of {0} bytes is reached")]
pub(crate) struct LimitReached(pub u64);

impl<W: Write> BoundedWriter<W> {
    pub(crate) fn new(inner: W, limit_bytes: u64) -> Self {
        Self {
            inner,
            written_bytes: 0,
            limit_bytes,
        }
    }

    /// Bytes that went through so far.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }
}

impl<W: Write> Write for BoundedWriter<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let after = self.written_bytes.saturating_add(buf.len() as u64);
        if after > self.limit_bytes {
            return Err(io::Error::other(LimitReached(self.limit_bytes)));
        }
        let count = self.inner.write(buf)?;
        self.written_bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Counts what is read and fails as soon as there is more than the limit.
#[derive(Debug)]
pub(crate) struct BoundedReader<R> {
    inner: R,
    left_bytes: u64,
    limit_bytes: u64,
}

impl<R: Read> BoundedReader<R> {
    pub(crate) fn new(inner: R, limit_bytes: u64) -> Self {
        Self {
            inner,
            left_bytes: limit_bytes,
            limit_bytes,
        }
    }
}

impl<R: Read> Read for BoundedReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buf)?;
        self.left_bytes = self
            .left_bytes
            .checked_sub(count as u64)
            .ok_or_else(|| io::Error::other(LimitReached(self.limit_bytes)))?;
        Ok(count)
    }
}

/// Whether an I/O error means that a limit of this module was reached.
pub(crate) fn is_limit(error: &io::Error) -> bool {
    error
        .get_ref()
        .is_some_and(|inner| inner.is::<LimitReached>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_up_to_the_limit_is_allowed_and_one_byte_more_is_not() {
        let mut text = String::new();
        BoundedReader::new(&b"abcd"[..], 4)
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "abcd");
        let error = BoundedReader::new(&b"abcde"[..], 4)
            .read_to_string(&mut text)
            .unwrap_err();
        assert!(is_limit(&error));
    }

    #[test]
    fn writing_up_to_the_limit_is_allowed_and_one_byte_more_is_not() {
        let mut writer = BoundedWriter::new(Vec::new(), 4);
        writer.write_all(b"abcd").unwrap();
        let error = writer.write_all(b"e").unwrap_err();
        assert!(is_limit(&error));
        assert_eq!(writer.written_bytes(), 4);
    }
}
