//! Keys and rows.

use prost::Message;

use crate::error::StoreError;

/// Names one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Kind, such as `VirtualMachineInstance`.
    pub kind: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// Separates the parts of a key. It occurs in no Kubernetes name and sorts before all of them.
const SEPARATOR: char = '\u{0}';

impl ObjectKey {
    /// The key under which the row is kept; rows sort by kind, namespace, name.
    pub(crate) fn row(&self) -> String {
        format!(
            "{}{SEPARATOR}{}{SEPARATOR}{}",
            self.kind, self.namespace, self.name
        )
    }

    /// The first key that no object of `kind` has.
    pub(crate) fn after_kind(kind: &str) -> String {
        format!("{kind}\u{1}")
    }

    /// Before every key of `kind`.
    pub(crate) fn before_kind(kind: &str) -> String {
        format!("{kind}{SEPARATOR}")
    }

    pub(crate) fn parse(row: &str) -> Option<Self> {
        let mut parts = row.split(SEPARATOR).map(str::to_owned);
        let key = Self {
            kind: parts.next()?,
            namespace: parts.next()?,
            name: parts.next()?,
        };
        parts.next().is_none().then_some(key)
    }
}

/// One object as it is stored.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StoredObject {
    /// `metadata.uid`.
    #[prost(string, tag = "1")]
    pub uid: String,
    /// `metadata.generation`.
    #[prost(int64, tag = "2")]
    pub generation: i64,
    /// `metadata.resourceVersion`.
    #[prost(uint64, tag = "3")]
    pub resource_version: u64,
    /// Tells specs apart; made by the caller.
    #[prost(bytes = "vec", tag = "4")]
    pub spec_digest: Vec<u8>,
    /// The whole object on the wire, with all that its owner put into it.
    #[prost(bytes = "vec", tag = "5")]
    pub object: Vec<u8>,
    /// What of the object is confidential, encrypted by its owner; on the wire it goes on where `object` ends.
    #[prost(message, optional, tag = "6")]
    pub sealed: Option<Sealed>,
}

/// Encrypted bytes.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Sealed {
    /// Names the key.
    #[prost(string, tag = "1")]
    pub key_id: String,
    /// Random bytes of this encryption alone.
    #[prost(bytes = "vec", tag = "2")]
    pub salt: Vec<u8>,
    /// The encrypted bytes and what authenticates them.
    #[prost(bytes = "vec", tag = "3")]
    pub ciphertext: Vec<u8>,
}

/// One entry of the change log.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct ChangeRow {
    /// 1 added, 2 modified, 3 deleted.
    #[prost(uint32, tag = "1")]
    pub kind: u32,
    /// The object's key.
    #[prost(string, tag = "2")]
    pub key: String,
    /// The object after the change, or its last state.
    #[prost(message, optional, tag = "3")]
    pub object: Option<StoredObject>,
}

pub(crate) fn decode<M: Message + Default>(bytes: &[u8], what: &str) -> Result<M, StoreError> {
    M::decode(bytes).map_err(|error| StoreError::Undecodable {
        what: format!("{what} ({error})"),
    })
}

pub(crate) fn parse_key(row: &str) -> Result<ObjectKey, StoreError> {
    ObjectKey::parse(row).ok_or_else(|| StoreError::Undecodable {
        what: format!("the key {row:?}"),
    })
}
