//! Answers of many messages.

use std::io;

use nix::errno::Errno;
use nix::libc;

use super::attributes::Attributes;
use super::batch::{Batch, ERROR, GET_ELEMENTS, HEADER_BYTES, Netfilter, TableName, header};
use super::kinds::Family;

const DONE: u16 = 3;

/// `NLM_F_DUMP`, and in answers `NLM_F_DUMP_INTR`.
const DUMP: u16 = 0x300;
const INTERRUPTED: u16 = 0x10;

/// How often something is read that changes while it is read.
const DUMPS: u32 = 5;

/// The kernel fills buffers of up to 32 KiB when it answers at length.
const MAX_ANSWER: usize = 32 << 10;

/// `NFTA_SET_ELEM_LIST_ELEMENTS`, then in each `NFTA_SET_ELEM_KEY` and `NFTA_DATA_VALUE`: the way to an element itself.
const TO_ELEMENTS: u16 = 3;
const TO_KEY: [u16; 2] = [1, 1];

impl Netfilter {
    /// All elements of a set, each as [`super::Value::padded`] and those of several fields one behind the other; none where there
    /// is no such set.
    ///
    /// # Errors
    /// When the kernel does not answer, or rules change all the time.
    pub(crate) fn elements_of(
        &self,
        (family, table): TableName<'_>,
        set: &str,
    ) -> io::Result<Vec<Vec<u8>>> {
        let mut attributes = Attributes::default();
        attributes.text(1, table);
        attributes.text(2, set);
        let messages = self.dump(GET_ELEMENTS, family, &attributes)?;
        Ok(messages.iter().flat_map(|message| keys(message)).collect())
    }

    /// The attributes of each message of an answer; none where what is asked for is not there.
    ///
    /// # Errors
    /// When the kernel does not answer, or rules change all the time.
    pub(super) fn dump(
        &self,
        kind: u16,
        family: Family,
        attributes: &Attributes,
    ) -> io::Result<Vec<Vec<u8>>> {
        for _ in 0..DUMPS {
            if let Some(messages) = self.dump_once(kind, family, attributes)? {
                return Ok(messages);
            }
        }
        let message = "rules of nftables cannot be read: they change all the time";
        Err(io::Error::other(message))
    }

    /// The same; `None` when rules changed meanwhile.
    fn dump_once(
        &self,
        kind: u16,
        family: Family,
        attributes: &Attributes,
    ) -> io::Result<Option<Vec<Vec<u8>>>> {
        let mut question = Batch::question();
        question.message(kind, DUMP, family, attributes);
        self.0.send(&question.bytes, 0)?;
        let mut dumped = Dumped::default();
        while !dumped.is_whole {
            let mut answer = Vec::with_capacity(MAX_ANSWER);
            self.0.recv(&mut answer, libc::MSG_DONTWAIT)?;
            dumped.take(&answer)?;
        }
        Ok((!dumped.is_interrupted).then_some(dumped.messages))
    }
}

/// The attributes of messages.
#[derive(Default)]
struct Dumped {
    messages: Vec<Vec<u8>>,
    is_whole: bool,
    is_interrupted: bool,
}

impl Dumped {
    fn take(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while let Some((length, kind, _)) = header(bytes) {
            let message = bytes.get(HEADER_BYTES..length).unwrap_or_default();
            self.is_interrupted |= flags(bytes) & INTERRUPTED != 0;
            match kind {
                DONE => self.is_whole = true,
                ERROR => {
                    let code = message.first_chunk().map(|code| i32::from_ne_bytes(*code));
                    let errno = Errno::from_raw(code.unwrap_or_default().saturating_neg());
                    if errno != Errno::ENOENT {
                        return Err(errno.into());
                    }
                    self.is_whole = true;
                }
                // Netfilter's own part of the header has four bytes.
                _ => self.messages.extend(message.get(4..).map(<[u8]>::to_vec)),
            }
            let next = length.next_multiple_of(4).max(HEADER_BYTES);
            bytes = bytes.get(next..).unwrap_or_default();
        }
        Ok(())
    }
}

fn keys(attributes: &[u8]) -> Vec<Vec<u8>> {
    let elements = Attributes::find(attributes, TO_ELEMENTS).unwrap_or_default();
    let key = |element| {
        let mut way = TO_KEY.iter();
        let key = way.try_fold(element, |found, kind| Attributes::find(found, *kind));
        key.map(<[u8]>::to_vec)
    };
    Attributes::each(elements).filter_map(key).collect()
}

fn flags(message: &[u8]) -> u16 {
    let flags = message.get(6..8).and_then(|flags| flags.try_into().ok());
    flags.map_or(0, u16::from_ne_bytes)
}
