//! State of devices as it outlives them: one payload for each thing that has state.
//!
//! A payload names what it is of and the version of its format, so that a reader decides before it
//! decodes. Its content is a protobuf message that lives beside the device: a new field touches no
//! other device, an old writer's absent field is its default, and a change that an old reader must
//! not miss is a new version. Content is read as if it were hostile: whoever restores checks every
//! value against the device that it makes.

#[cfg(test)]
mod format;
#[cfg(test)]
pub(crate) mod kept;

use prost::Message;

/// Longest content that is read: a disk with all its requests in flight and the bitmap of the largest base
/// stays below.
pub const MAX_PAYLOAD_BYTES: usize = 6 << 20;

/// The state of one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// What it is the state of, such as `virtio-pci` or `virtio-blk`.
    pub kind: String,
    /// Version of the content's format within its kind.
    pub version: u32,
    /// The content.
    pub bytes: Vec<u8>,
}

impl Payload {
    /// A message as a payload.
    #[must_use]
    pub fn of(kind: &str, version: u32, message: &impl Message) -> Self {
        Self {
            kind: kind.to_owned(),
            version,
            bytes: message.encode_to_vec(),
        }
    }

    /// The message in it, which is to be of `kind` and `version`.
    ///
    /// # Errors
    /// It is of another kind or version, too long, or no such message.
    pub fn read<M: Message + Default>(
        &self,
        kind: &'static str,
        version: u32,
    ) -> Result<M, StateError> {
        if self.kind != kind {
            return Err(StateError::Missing { kind });
        }
        if self.version != version {
            return Err(StateError::Version {
                kind,
                version: self.version,
                known: version,
            });
        }
        let bytes = self.bytes.len();
        if bytes > MAX_PAYLOAD_BYTES {
            return Err(StateError::TooLong { kind, bytes });
        }
        M::decode(self.bytes.as_slice()).map_err(|source| StateError::Decode { kind, source })
    }
}

/// A payload cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// There is none of the kind.
    #[error("state of {kind} is missing")]
    Missing {
        /// Kind of the payload.
        kind: &'static str,
    },
    /// There is one that nothing asked for.
    #[error("state of {kind} belongs to nothing here")]
    Leftover {
        /// Kind of the payload.
        kind: String,
    },
    /// The format is newer than this program, or older than it still reads.
    #[error("state of {kind} has version {version}; version {known} is known here")]
    Version {
        /// Kind of the payload.
        kind: &'static str,
        /// Version in the payload.
        version: u32,
        /// Newest version that this program reads.
        known: u32,
    },
    /// The content is too long.
    #[error("state of {kind} has {bytes} bytes, at most {MAX_PAYLOAD_BYTES} are read")]
    TooLong {
        /// Kind of the payload.
        kind: &'static str,
        /// Its length.
        bytes: usize,
    },
    /// The content is no message.
    #[error("state of {kind} cannot be decoded")]
    Decode {
        /// Kind of the payload.
        kind: &'static str,
        /// The underlying error.
        #[source]
        source: prost::DecodeError,
    },
    /// A value cannot be: the state is of another device, or damaged.
    #[error("state of {kind}: {what}")]
    Value {
        /// Kind of the payload.
        kind: &'static str,
        /// Which value, and why it cannot be.
        what: String,
    },
}

/// A message that is the state of something.
pub trait DeviceState: Message + Default {
    /// Kind of its payload.
    const KIND: &'static str;
    /// Version of its format.
    const VERSION: u32;

    /// The payload.
    fn to_payload(&self) -> Payload {
        Payload::of(Self::KIND, Self::VERSION, self)
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// It is of another version, too long, or no such message.
    fn from_payload(payload: &Payload) -> Result<Self, StateError> {
        payload.read(Self::KIND, Self::VERSION)
    }

    /// An error about a value.
    fn wrong(what: impl Into<String>) -> StateError {
        StateError::Value {
            kind: Self::KIND,
            what: what.into(),
        }
    }
}

/// The payloads of one function, each to be taken once.
#[derive(Debug, Default)]
pub struct Payloads(Vec<Payload>);

impl Payloads {
    /// Payloads as they were saved.
    #[must_use]
    pub fn new(payloads: Vec<Payload>) -> Self {
        Self(payloads)
    }

    /// Takes the state of kind `S`.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn take<S: DeviceState>(&mut self) -> Result<S, StateError> {
        let at = self.0.iter().position(|payload| payload.kind == S::KIND);
        match at {
            Some(at) => S::from_payload(&self.0.swap_remove(at)),
            None => Err(StateError::Missing { kind: S::KIND }),
        }
    }

    /// Takes the state of kind `S`, which may not be there.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn take_if_there<S: DeviceState>(&mut self) -> Result<Option<S>, StateError> {
        match self.take() {
            Err(StateError::Missing { .. }) => Ok(None),
            other => other.map(Some),
        }
    }

    /// Ends the taking: state that nothing asked for would be lost silently.
    ///
    /// # Errors
    /// A payload is left.
    pub fn finish(self) -> Result<(), StateError> {
        match self.0.into_iter().next() {
            None => Ok(()),
            Some(Payload { kind, .. }) => Err(StateError::Leftover { kind }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, PartialEq, Message)]
    struct Lamp {
        #[prost(bool, tag = "1")]
        on: bool,
    }

    impl DeviceState for Lamp {
        const KIND: &'static str = "lamp";
        const VERSION: u32 = 2;
    }

    #[test]
    fn state_comes_back_once_and_nothing_is_left_over() {
        let lamp = Lamp { on: true };
        let mut payloads = Payloads::new(vec![lamp.to_payload()]);
        assert_eq!(payloads.take::<Lamp>().unwrap(), lamp);
        let again = payloads.take::<Lamp>();
        assert!(matches!(again, Err(StateError::Missing { kind: "lamp" })));
        payloads.finish().unwrap();
        let unread = Payloads::new(vec![lamp.to_payload()]);
        assert!(matches!(unread.finish(), Err(StateError::Leftover { .. })));
    }

    #[test]
    fn another_version_is_refused_before_it_is_decoded() {
        let payload = Payload {
            version: 3,
            bytes: vec![0xff; 4],
            ..Lamp::default().to_payload()
        };
        assert!(matches!(
            Lamp::from_payload(&payload),
            Err(StateError::Version {
                version: 3,
                known: 2,
                ..
            })
        ));
        let payload = Payload {
            version: 2,
            ..payload
        };
        assert!(matches!(
            Lamp::from_payload(&payload),
            Err(StateError::Decode { .. })
        ));
    }
}
