//! A writer that refuses to write more than it was allowed to.

use std::io::{self, Write};

/// Counts what goes through and fails as soon as the limit would be exceeded.
#[derive(Debug)]
pub(crate) struct BoundedWriter<W> {
    inner: W,
    written_bytes: u64,
    limit_bytes: u64,
}

/// Marks the error that means "the limit was reached", whatever decoder passed it on.
#[derive(Debug, thiserror::Error)]
#[error("the output limit of {0} bytes is reached")]
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

/// Whether an I/O error means that a [`BoundedWriter`] reached its limit.
pub(crate) fn is_limit(error: &io::Error) -> bool {
    error
        .get_ref()
        .is_some_and(|inner| inner.is::<LimitReached>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_up_to_the_limit_is_allowed_and_one_byte_more_is_not() {
        let mut writer = BoundedWriter::new(Vec::new(), 4);
        writer.write_all(b"abcd").unwrap();
        let error = writer.write_all(b"e").unwrap_err();
        assert!(is_limit(&error));
        assert_eq!(writer.written_bytes(), 4);
    }
}
