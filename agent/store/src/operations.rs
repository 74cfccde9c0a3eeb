//! The changes that a transaction makes to rows, as the write-ahead log has them.
//!
//! Each says what a row is afterwards, so that carrying them out once more, on tables that have them already, changes nothing.

use crate::frames::{FRAME_BYTES, PREFIX_BYTES};

/// Bytes of the operations of a few writes, which is what most transactions have.
const USUAL_BYTES: usize = 16 << 10;

const REMOVE: u8 = 0;
const PUT: u8 = 1;

/// The operations of one transaction, in the order in which it makes them.
#[derive(Debug)]
pub(crate) struct Operations {
    /// A frame whose prefix is still to be filled in; `None` once there is more than a frame takes.
    frame: Option<Vec<u8>>,
    is_empty: bool,
}

/// What becomes of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operation<'a> {
    pub(crate) table: &'a str,
    pub(crate) key: &'a [u8],
    /// `None`: the row is removed.
    pub(crate) value: Option<&'a [u8]>,
}

impl Operations {
    pub(crate) fn new() -> Self {
        let mut frame = Vec::with_capacity(USUAL_BYTES);
        frame.resize(PREFIX_BYTES, 0);
        Self {
            frame: Some(frame),
            is_empty: true,
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.is_empty
    }

    pub(crate) fn add(&mut self, operation: Operation<'_>) {
        self.is_empty = false;
        let Some(frame) = &mut self.frame else { return };
        let Operation { table, key, value } = operation;
        frame.push(if value.is_some() { PUT } else { REMOVE });
        for part in [Some(table.as_bytes()), Some(key), value]
            .into_iter()
            .flatten()
        {
            // What has more bytes than the length can say does not fit a frame.
            let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
            frame.extend_from_slice(&length.to_le_bytes());
            if frame.len().saturating_add(part.len()) > FRAME_BYTES {
                self.frame = None;
                return;
            }
            frame.extend_from_slice(part);
        }
    }

    /// The frame without its prefix; `None` when they do not fit one.
    pub(crate) fn into_frame(self) -> Option<Vec<u8>> {
        self.frame
    }
}

/// The operations of a frame, which is whole.
pub(crate) fn operations(frame: &[u8]) -> impl Iterator<Item = Operation<'_>> {
    let mut rest = frame.get(PREFIX_BYTES..).unwrap_or_default();
    std::iter::from_fn(move || {
        let (kind, more) = rest.split_first()?;
        let (table, more) = part(more)?;
        let (key, more) = part(more)?;
        let (value, more) = match *kind {
            PUT => {
                let (value, more) = part(more)?;
                (Some(value), more)
            }
            _ => (None, more),
        };
        rest = more;
        let table = std::str::from_utf8(table).ok()?;
        Some(Operation { table, key, value })
    })
}

/// Bytes behind their length, and what follows them.
fn part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_read_as_they_were_added() {
        let added = [
            Operation {
                table: "objects",
                key: b"a",
                value: Some(b"1"),
            },
            Operation {
                table: "keys",
                key: b"",
                value: Some(b""),
            },
            Operation {
                table: "objects",
                key: b"a",
                value: None,
            },
        ];
        let mut all = Operations::new();
        assert!(all.is_empty());
        added.iter().for_each(|operation| all.add(*operation));
        assert!(!all.is_empty());
        let frame = all.into_frame().unwrap();
        assert_eq!(operations(&frame).collect::<Vec<_>>(), added);
    }

    #[test]
    fn more_than_a_frame_has_room_for_is_no_frame() {
        let mut all = Operations::new();
        let value = vec![7; FRAME_BYTES - 100];
        let add = |all: &mut Operations| {
            all.add(Operation {
                table: "objects",
                key: b"a",
                value: Some(&value),
            });
        };
        add(&mut all);
        add(&mut all);
        add(&mut all);
        assert!(!all.is_empty());
        assert_eq!(all.into_frame(), None);
    }
}
