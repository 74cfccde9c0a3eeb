//! What reading one file out of an image may cost in all, however often its layers are read.

use std::cell::Cell;
use std::io::{self, Read};

use super::layout::OciError;
use crate::bounded::LimitReached;

/// Bytes that may still be read, packed and unpacked ones, over all layers and links.
#[derive(Debug)]
pub(super) struct Budget {
    left_bytes: Cell<u64>,
    limit_bytes: u64,
    is_exceeded: Cell<bool>,
}

impl Budget {
    pub(super) fn new(limit_bytes: u64) -> Self {
        Self {
            left_bytes: Cell::new(limit_bytes),
            limit_bytes,
            is_exceeded: Cell::new(false),
        }
    }

    /// The same reader, whose bytes are counted.
    pub(super) fn reader<R>(&self, inner: R) -> BudgetReader<'_, R> {
        BudgetReader {
            inner,
            budget: self,
        }
    }

    /// Whether more was to be read than may be.
    pub(super) fn is_exceeded(&self) -> bool {
        self.is_exceeded.get()
    }

    /// What is wrong, if it is that the budget is exceeded: decoders wrap errors of what they read.
    pub(super) fn explain(&self, error: OciError) -> OciError {
        if self.is_exceeded() {
            OciError::TooLarge {
                what: "what has to be read of the layers".to_owned(),
                limit: self.limit_bytes,
            }
        } else {
            error
        }
    }

    fn spend(&self, bytes: u64) -> io::Result<()> {
        match self.left_bytes.get().checked_sub(bytes) {
            Some(left) => {
                self.left_bytes.set(left);
                Ok(())
            }
            None => {
                self.left_bytes.set(0);
                self.is_exceeded.set(true);
                Err(io::Error::other(LimitReached(self.limit_bytes)))
            }
        }
    }
}

/// Counts what is read.
pub(super) struct BudgetReader<'a, R> {
    inner: R,
    budget: &'a Budget,
}

impl<R: Read> Read for BudgetReader<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buf)?;
        self.budget.spend(count as u64)?;
        Ok(count)
    }
}
