//! Blobs: files named by their digest, verified while they are read.

use std::io::{self, Read};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256, Sha512};

use super::layout::{LayoutDir, OciError};

/// A blob as a manifest refers to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Descriptor {
    pub(super) media_type: String,
    pub(super) digest: Digest,
    pub(super) size: u64,
}

/// A digest whose text may be part of a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(super) struct Digest {
    algorithm: Algorithm,
    hex: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Algorithm {
    Sha256,
    Sha512,
}

impl Algorithm {
    fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }
}

impl Digest {
    /// `sha256:` or `sha512:` and as many lower case hex digits as that has.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (name, hex) = text.split_once(':')?;
        let (algorithm, digits) = match name {
            "sha256" => (Algorithm::Sha256, 64),
            "sha512" => (Algorithm::Sha512, 128),
            _ => return None,
        };
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (hex.len() == digits && hex.bytes().all(is_digit)).then(|| Self {
            algorithm,
            hex: hex.to_owned(),
        })
    }

    /// The text form.
    pub(super) fn text(&self) -> String {
        format!("{}:{}", self.algorithm.name(), self.hex)
    }

    /// Where the blob is in a layout.
    pub(super) fn path(&self) -> PathBuf {
        ["blobs", self.algorithm.name(), &self.hex].iter().collect()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.text()
    }
}

impl TryFrom<String> for Digest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("{text:?} is no digest"))
    }
}

enum Hash {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hash {
    fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Sha256 => Self::Sha256(Sha256::new()),
            Algorithm::Sha512 => Self::Sha512(Sha512::new()),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hash) => hash.update(bytes),
            Self::Sha512(hash) => hash.update(bytes),
        }
    }

    fn finish(self) -> String {
        match self {
            Self::Sha256(hash) => hex(&hash.finalize()),
            Self::Sha512(hash) => hex(&hash.finalize()),
        }
    }
}

/// The digest of bytes that are at hand.
pub(super) fn digest_of(bytes: &[u8]) -> Digest {
    Digest {
        algorithm: Algorithm::Sha256,
        hex: hex(&Sha256::digest(bytes)),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A blob that is being read.
pub(super) struct BlobReader<'a> {
    inner: io::Take<Box<dyn Read>>,
    hash: Hash,
    read_bytes: u64,
    descriptor: &'a Descriptor,
}

impl<'a> BlobReader<'a> {
    pub(super) fn open<D: LayoutDir>(
        dir: &D,
        descriptor: &'a Descriptor,
    ) -> Result<Self, OciError> {
        let path = descriptor.digest.path();
        let file = dir.open(&path).map_err(|source| OciError::Read {
            file: path.display().to_string(),
            source,
        })?;
        Ok(Self {
            // One byte more than there should be, to notice that there is more.
            inner: file.take(descriptor.size.saturating_add(1)),
            hash: Hash::new(descriptor.digest.algorithm),
            read_bytes: 0,
            descriptor,
        })
    }

    /// Reads what is left and compares size and digest. What was read before is only to be trusted
    /// after this.
    pub(super) fn verify(mut self) -> Result<(), OciError> {
        io::copy(&mut self, &mut io::sink()).map_err(|source| OciError::Read {
            file: self.descriptor.digest.path().display().to_string(),
            source,
        })?;
        let damaged = |what| OciError::Damaged {
            digest: self.descriptor.digest.text(),
            what,
        };
        if self.read_bytes != self.descriptor.size {
            return Err(damaged("size"));
        }
        if self.hash.finish() != self.descriptor.digest.hex {
            return Err(damaged("digest"));
        }
        Ok(())
    }
}

impl Read for BlobReader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buf)?;
        self.hash.update(buf.get(..count).unwrap_or_default());
        self.read_bytes += count as u64;
        Ok(count)
    }
}

/// A whole small blob, verified.
pub(super) fn read_document<D: LayoutDir>(
    dir: &D,
    descriptor: &Descriptor,
    limit_bytes: u64,
) -> Result<Vec<u8>, OciError> {
    if descriptor.size > limit_bytes {
        return Err(OciError::TooLarge {
            what: format!("the manifest {}", descriptor.digest.text()),
            limit: limit_bytes,
        });
    }
    let mut reader = BlobReader::open(dir, descriptor)?;
    let mut bytes = Vec::new();
    reader
        .read_to_end(&mut bytes)
        .map_err(|source| OciError::Read {
            file: descriptor.digest.path().display().to_string(),
            source,
        })?;
    reader.verify()?;
    Ok(bytes)
}
