//! Persisted payloads: what a VMM writes to a file for a reader of another release.
//!
//! A payload is a header of [`PAYLOAD_HEADER_BYTES`] bytes, little endian, then the body:
//!
//! | offset | size | field |
//! | --- | --- | --- |
//! | 0 | 8 | magic `kvmletPL` |
//! | 8 | 4 | kind |
//! | 12 | 4 | version of the body's format within its kind |
//! | 16 | 8 | length of the body in bytes |
//! | 24 | 4 | CRC-32 (IEEE) of the body |
//! | 28 | 4 | CRC-32 (IEEE) of the 28 bytes before |
//!
//! So kind and version are known before anything of the body is decoded, and a half-written file is
//! distinguished from a whole one.

use prost::Message;

use crate::v1::{ExitRecord, Snapshot};

/// Size of the header.
pub const PAYLOAD_HEADER_BYTES: usize = 32;

/// Version of the body of [`PayloadKind::EXIT_RECORD`] that this release writes.
pub const EXIT_RECORD_VERSION: u32 = 1;

/// An exit record longer than this was not written by a VMM.
pub const MAX_EXIT_RECORD_BYTES: usize = 64 << 10;

/// Version of the format of snapshots that this release writes. Version 1 had no checksums of RAM.
pub const SNAPSHOT_VERSION: u32 = 2;

/// Largest snapshot without its RAM that is read: some ten KiB for a vCPU, a few for a device.
pub const MAX_SNAPSHOT_BYTES: usize = 64 << 20;

const MAGIC: [u8; 8] = *b"kvmletPL";

/// What a payload holds. Numbers are never used again for something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PayloadKind(pub u32);

impl PayloadKind {
    /// One encoded [`ExitRecord`].
    pub const EXIT_RECORD: Self = Self(1);
    /// A [`Snapshot`] at the start of its file.
    pub const SNAPSHOT: Self = Self(2);
}

/// Why bytes are not the payload that was looked for.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PayloadError {
    /// Nothing was written yet.
    #[error("the payload is empty")]
    Empty,
    /// The header is cut off, or the body is shorter than the header says.
    #[error("the payload is cut off: {present} of {expected} bytes")]
    Truncated {
        /// Bytes that are there.
        present: usize,
        /// Bytes that there must be.
        expected: usize,
    },
    /// The first bytes are not the magic.
    #[error("the payload does not start with the magic of kvmlet's payloads")]
    Magic,
    /// The header or the body was altered or only partly written.
    #[error("the checksum of the payload's {0} is wrong")]
    Checksum(&'static str),
    /// The body is beyond the reader's limit.
    #[error("the payload's body of {length} bytes is longer than the {limit} bytes allowed")]
    TooLong {
        /// What the header says.
        length: u64,
        /// The reader's limit.
        limit: usize,
    },
    /// The payload holds something else.
    #[error("the payload is of kind {found} instead of {wanted}")]
    Kind {
        /// What the header says.
        found: u32,
        /// What was looked for.
        wanted: u32,
    },
    /// The payload was written by a release that is too new or too old.
    #[error("version {found} of the payload is not known; known are 1 to {newest}")]
    Version {
        /// What the header says.
        found: u32,
        /// The newest version that this release reads.
        newest: u32,
    },
    /// The body is not what its kind and version promise.
    #[error("the payload's body cannot be decoded")]
    Body(#[source] prost::DecodeError),
}

/// Header and body of a payload.
#[must_use]
pub fn encode(kind: PayloadKind, version: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(PAYLOAD_HEADER_BYTES + body.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&kind.0.to_le_bytes());
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&crc32fast::hash(body).to_le_bytes());
    let header_checksum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&header_checksum.to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// A payload whose header and checksums are right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payload<'a> {
    /// Type of the payload's message.
    pub kind: PayloadKind,
    /// Version of the body's format within its kind.
    pub version: u32,
    /// The body, as long as the header says.
    pub body: &'a [u8],
}

/// Checks the payload at the start of `bytes`; what follows it is not looked at.
///
/// # Errors
/// When header or checksums are wrong or the body is longer than `limit_bytes`.
pub fn decode(bytes: &[u8], limit_bytes: usize) -> Result<Payload<'_>, PayloadError> {
    if bytes.is_empty() {
        return Err(PayloadError::Empty);
    }
    let (header, rest) =
        bytes
            .split_first_chunk::<PAYLOAD_HEADER_BYTES>()
            .ok_or(PayloadError::Truncated {
                present: bytes.len(),
                expected: PAYLOAD_HEADER_BYTES,
            })?;
    if header[..8] != MAGIC {
        return Err(PayloadError::Magic);
    }
    let word = |at: usize| {
        u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    if crc32fast::hash(&header[..28]) != word(28) {
        return Err(PayloadError::Checksum("header"));
    }
    let length = u64::from(word(16)) | u64::from(word(20)) << 32;
    let body_bytes = usize::try_from(length)
        .ok()
        .filter(|length| *length <= limit_bytes)
        .ok_or(PayloadError::TooLong {
            length,
            limit: limit_bytes,
        })?;
    let body = rest.get(..body_bytes).ok_or(PayloadError::Truncated {
        present: bytes.len(),
        expected: PAYLOAD_HEADER_BYTES + body_bytes,
    })?;
    if crc32fast::hash(body) != word(24) {
        return Err(PayloadError::Checksum("body"));
    }
    Ok(Payload {
        kind: PayloadKind(word(8)),
        version: word(12),
        body,
    })
}

/// The contents of an exit record file.
#[must_use]
pub fn encode_exit_record(record: &ExitRecord) -> Vec<u8> {
    encode(
        PayloadKind::EXIT_RECORD,
        EXIT_RECORD_VERSION,
        &record.encode_to_vec(),
    )
}

/// Reads an exit record file. [`PayloadError::Empty`] says that the VMM did not get to write one.
///
/// # Errors
/// When the file does not hold a whole exit record of a known version.
pub fn decode_exit_record(bytes: &[u8]) -> Result<ExitRecord, PayloadError> {
    let payload = decode(bytes, MAX_EXIT_RECORD_BYTES)?;
    read_body(payload, PayloadKind::EXIT_RECORD, EXIT_RECORD_VERSION)
}

/// The head of a snapshot file.
#[must_use]
pub fn encode_snapshot(snapshot: &Snapshot) -> Vec<u8> {
    encode(
        PayloadKind::SNAPSHOT,
        SNAPSHOT_VERSION,
        &snapshot.encode_to_vec(),
    )
}

/// Length of the head that a snapshot file begins with, by its first [`PAYLOAD_HEADER_BYTES`] bytes.
///
/// # Errors
/// When the header is wrong or promises more than [`MAX_SNAPSHOT_BYTES`].
pub fn snapshot_head_bytes(header: &[u8]) -> Result<usize, PayloadError> {
    match decode(header, MAX_SNAPSHOT_BYTES) {
        Ok(_) => Ok(PAYLOAD_HEADER_BYTES),
        Err(PayloadError::Truncated { expected, .. }) if expected > header.len() => Ok(expected),
        Err(error) => Err(error),
    }
}

/// Reads the head of a snapshot file.
///
/// # Errors
/// When it is not a whole head of a known version.
pub fn decode_snapshot(bytes: &[u8]) -> Result<Snapshot, PayloadError> {
    decode_versioned_snapshot(bytes).map(|(_, snapshot)| snapshot)
}

/// Reads the head of a snapshot file, and the version of its format.
///
/// # Errors
/// As [`decode_snapshot`].
pub fn decode_versioned_snapshot(bytes: &[u8]) -> Result<(u32, Snapshot), PayloadError> {
    let payload = decode(bytes, MAX_SNAPSHOT_BYTES)?;
    let snapshot = read_body(payload, PayloadKind::SNAPSHOT, SNAPSHOT_VERSION)?;
    Ok((payload.version, snapshot))
}

fn read_body<M: Message + Default>(
    payload: Payload<'_>,
    wanted: PayloadKind,
    newest: u32,
) -> Result<M, PayloadError> {
    if payload.kind != wanted {
        return Err(PayloadError::Kind {
            found: payload.kind.0,
            wanted: wanted.0,
        });
    }
    if !(1..=newest).contains(&payload.version) {
        return Err(PayloadError::Version {
            found: payload.version,
            newest,
        });
    }
    M::decode(payload.body).map_err(PayloadError::Body)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::v1::ExitReason;

    fn record() -> ExitRecord {
        ExitRecord {
            reason: ExitReason::GuestPoweroff.into(),
            detail: "PM1a_CNT".to_owned(),
            incarnation: 3,
            ..ExitRecord::default()
        }
    }

    proptest! {
        #[test]
        fn payloads_come_out_as_they_went_in(
            kind: u32, version: u32, body in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let bytes = encode(PayloadKind(kind), version, &body);
            let payload = decode(&bytes, 200).unwrap();
            prop_assert_eq!(payload, Payload { kind: PayloadKind(kind), version, body: &body });
        }

        #[test]
        fn every_flipped_bit_is_noticed(bit in 0..(PAYLOAD_HEADER_BYTES + 20) * 8) {
            let mut bytes = encode(PayloadKind::EXIT_RECORD, 1, &[0x5a; 20]);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(decode(&bytes, 200).is_err());
        }

        #[test]
        fn every_truncation_is_noticed(keep in 0..PAYLOAD_HEADER_BYTES + 20) {
            let bytes = encode(PayloadKind::EXIT_RECORD, 1, &[0x5a; 20]);
            let refused = decode(&bytes[..keep], 200);
            let is_cut = matches!(refused, Err(PayloadError::Empty | PayloadError::Truncated { .. }));
            prop_assert!(is_cut);
        }
    }

    #[test]
    fn an_exit_record_is_read_back() {
        assert_eq!(
            decode_exit_record(&encode_exit_record(&record())),
            Ok(record())
        );
    }

    #[test]
    fn an_exit_record_of_a_newer_release_is_named_as_such() {
        let bytes = encode(PayloadKind::EXIT_RECORD, 9, &record().encode_to_vec());
        assert_eq!(
            decode_exit_record(&bytes),
            Err(PayloadError::Version {
                found: 9,
                newest: 1
            })
        );
    }

    #[test]
    fn another_kind_of_payload_is_no_exit_record() {
        let bytes = encode(PayloadKind(77), 1, &record().encode_to_vec());
        assert!(matches!(
            decode_exit_record(&bytes),
            Err(PayloadError::Kind { found: 77, .. })
        ));
    }
}
