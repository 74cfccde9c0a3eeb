//! Sealing and opening under one key.
//!
//! AES-256-GCM under a key of its own for every sealing, derived by HKDF-SHA-256 from the node's key and 256 random
//! bits that are kept beside the ciphertext. The nonce is therefore always zero: what never repeats is the derived key,
//! and nothing is counted that a restored backup could set back.

use agent_store::Sealed;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

/// A key as text is twice as long as its bytes.
pub(crate) const KEY_BYTES: usize = 32;

/// Tells keys derived for objects from all others.
const PURPOSE: &[u8] = b"kvmlet object 1";

/// Identity of an object. Its ciphertext opens under this identity only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObjectIdentity<'a> {
    pub(crate) kind: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
}

impl ObjectIdentity<'_> {
    /// The associated data: each part with its length, so that no two places are alike.
    fn associated(&self) -> Vec<u8> {
        let mut data = PURPOSE.to_vec();
        for part in [self.kind, self.namespace, self.name, self.uid] {
            data.extend(u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
            data.extend(part.as_bytes());
        }
        data
    }
}

/// Why something was not sealed or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SealError {
    /// There are no random bytes, or more is to be sealed than the cipher takes.
    #[error("the data cannot be encrypted")]
    NotSealed,
    /// The ciphertext was changed, is of another object, or of another key.
    #[error("the encrypted data was changed, or belongs to another object or key")]
    NotOpened,
}

/// Encrypts data of Secrets in the ledger.
pub(crate) struct Key {
    id: String,
    bytes: [u8; KEY_BYTES],
}

impl std::fmt::Debug for Key {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Key({})", self.id)
    }
}

impl Key {
    /// The key of these bytes.
    pub(crate) fn new(bytes: [u8; KEY_BYTES]) -> Self {
        let tag = authenticate(&bytes, b"kvmlet key id 1", b"");
        let id = hex::encode(tag.as_ref().get(..8).unwrap_or_default());
        Self { id, bytes }
    }

    /// Names the key without telling it.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Tells data apart by a value from which nobody can guess the data without the key.
    pub(crate) fn digest(&self, data: &[u8]) -> Vec<u8> {
        let tag = authenticate(&self.bytes, b"kvmlet digest 1", data);
        tag.as_ref().to_vec()
    }

    /// Encrypts data for one place.
    ///
    /// # Errors
    /// [`SealError::NotSealed`].
    pub(crate) fn seal(
        &self,
        place: &ObjectIdentity<'_>,
        mut data: Vec<u8>,
    ) -> Result<Sealed, SealError> {
        let mut salt = [0; 32];
        let drawn = SystemRandom::new().fill(&mut salt);
        drawn.map_err(|_| SealError::NotSealed)?;
        let (key, nonce) = self.derived(&salt).ok_or(SealError::NotSealed)?;
        let associated = Aad::from(place.associated());
        let sealed = key.seal_in_place_append_tag(nonce, associated, &mut data);
        sealed.map_err(|_| SealError::NotSealed)?;
        Ok(Sealed {
            key_id: self.id.clone(),
            salt: salt.to_vec(),
            ciphertext: data,
        })
    }

    /// Decrypts what was sealed for the same place.
    ///
    /// # Errors
    /// [`SealError::NotOpened`].
    pub(crate) fn open(
        &self,
        place: &ObjectIdentity<'_>,
        sealed: &Sealed,
    ) -> Result<Vec<u8>, SealError> {
        let (key, nonce) = self.derived(&sealed.salt).ok_or(SealError::NotOpened)?;
        let mut data = sealed.ciphertext.clone();
        let associated = Aad::from(place.associated());
        let opened = key.open_in_place(nonce, associated, &mut data);
        let bytes = opened.map_err(|_| SealError::NotOpened)?.len();
        data.truncate(bytes);
        Ok(data)
    }

    fn derived(&self, salt: &[u8]) -> Option<(LessSafeKey, Nonce)> {
        let secret = Salt::new(HKDF_SHA256, salt).extract(&self.bytes);
        let material = secret.expand(&[PURPOSE], &AES_256_GCM).ok()?;
        let key = LessSafeKey::new(UnboundKey::from(material));
        Some((key, Nonce::assume_unique_for_key([0; 12])))
    }
}

fn authenticate(key: &[u8], purpose: &[u8], data: &[u8]) -> hmac::Tag {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let mut context = hmac::Context::with_key(&key);
    context.update(purpose);
    context.update(data);
    context.sign()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: ObjectIdentity<'_> = ObjectIdentity {
        kind: "Secret",
        namespace: "default",
        name: "web",
        uid: "u-1",
    };

    #[test]
    fn what_is_sealed_opens_at_its_place_under_its_key_alone() {
        let key = Key::new([1; KEY_BYTES]);
        let sealed = key.seal(&PLACE, b"plain".to_vec()).expect("is sealed");
        assert_eq!(sealed.key_id, key.id());
        assert_eq!(key.open(&PLACE, &sealed), Ok(b"plain".to_vec()));
        for place in [
            ObjectIdentity {
                kind: "ConfigMap",
                ..PLACE
            },
            ObjectIdentity {
                namespace: "other",
                ..PLACE
            },
            ObjectIdentity {
                name: "db",
                ..PLACE
            },
            ObjectIdentity {
                uid: "u-2",
                ..PLACE
            },
            // The parts have borders.
            ObjectIdentity {
                namespace: "defaultw",
                name: "eb",
                ..PLACE
            },
        ] {
            let opened = key.open(&place, &sealed);
            assert_eq!(opened, Err(SealError::NotOpened), "{place:?}");
        }
        let other = Key::new([2; KEY_BYTES]);
        assert_eq!(other.open(&PLACE, &sealed), Err(SealError::NotOpened));
        for part in 0..3 {
            let mut changed = sealed.clone();
            match part {
                0 => changed.salt[0] ^= 1,
                1 => changed.ciphertext[0] ^= 1,
                _ => drop(changed.ciphertext.pop()),
            }
            assert_eq!(key.open(&PLACE, &changed), Err(SealError::NotOpened));
        }
    }

    #[test]
    fn no_two_sealings_are_alike() {
        let key = Key::new([1; KEY_BYTES]);
        let seal = || key.seal(&PLACE, b"plain".to_vec()).expect("is sealed");
        let (first, second) = (seal(), seal());
        assert_ne!(first.salt, second.salt);
        assert_ne!(first.ciphertext, second.ciphertext);
    }
}
