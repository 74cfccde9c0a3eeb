//! The key under which confidential objects are encrypted in the ledger: where it comes from, and what is refused
//! without it.

mod key;

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use agent_sources::ApiError;
use ring::rand::{SecureRandom, SystemRandom};

use crate::durable;
use key::KEY_BYTES;
pub(crate) use key::{Key, ObjectIdentity, SealError};

/// Name of the credential that systemd hands over (`LoadCredentialEncrypted=`).
const CREDENTIAL: &str = "kvmlet.secrets-key";

/// Name of the file in the state directory where there is no credential.
const FILE: &str = "secrets.key";

/// The key, or why there is none. All but confidential objects is served without one.
#[derive(Debug)]
pub(crate) enum Secrets {
    /// There is one.
    Open(Box<Key>),
    /// There is none, or not the right one.
    Refused(String),
}

impl Secrets {
    /// Finds the key; `used` are the ids of the keys that the ledger's ciphertext needs. One is made only where the
    /// ledger holds none: a new key could not open what is there, and would hide that the old one is lost.
    pub(crate) fn load(state_dir: &Path, used: &[String]) -> Self {
        let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
        Self::find(credentials.as_deref(), state_dir, used).unwrap_or_else(Self::Refused)
    }

    fn find(credentials: Option<&Path>, state_dir: &Path, used: &[String]) -> Result<Self, String> {
        let file = state_dir.join(FILE);
        let credential = credentials.map(|directory| directory.join(CREDENTIAL));
        let credential = credential.filter(|path| path.exists());
        let place = credential.clone().unwrap_or_else(|| file.clone());
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", place.display());
        let bytes = match read(&place, credential.is_none()) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound && used.is_empty() => {
                create(&file).map_err(|error| failed(&error))?
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(format!(
                    "the ledger holds data encrypted with key {}, and there is no key: put it back as {}, or hand it \
                     over as the credential {CREDENTIAL}",
                    used.join(", "),
                    file.display()
                ));
            }
            Err(error) => return Err(failed(&error)),
        };
        let key = Key::new(bytes);
        if !used.is_empty() && !used.iter().any(|id| id == key.id()) {
            return Err(format!(
                "the ledger holds data encrypted with key {}, and {} holds key {}: put the former back",
                used.join(", "),
                place.display(),
                key.id()
            ));
        }
        Ok(Self::Open(Box::new(key)))
    }

    /// The key.
    ///
    /// # Errors
    /// [`ApiError::Unavailable`] with what the operator has to do.
    pub(crate) fn key(&self) -> Result<&Key, ApiError> {
        match self {
            Self::Open(key) => Ok(key),
            Self::Refused(why) => Err(ApiError::Unavailable(format!(
                "Secrets can be neither read nor written: {why}"
            ))),
        }
    }

    /// Why there is no key.
    pub(crate) fn refused(&self) -> Option<&str> {
        match self {
            Self::Open(_) => None,
            Self::Refused(why) => Some(why),
        }
    }
}

/// A key file: 32 bytes, or the same in hexadecimal. One of the state directory is for its owner alone.
fn read(path: &Path, is_private: bool) -> io::Result<[u8; KEY_BYTES]> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if is_private && metadata.mode() & 0o077 != 0 {
        return Err(io::Error::other(format!(
            "mode {:04o} lets others read the key: chmod 0600",
            metadata.mode() & 0o7777
        )));
    }
    let mut bytes = Vec::new();
    let limit = u64::try_from(KEY_BYTES * 4).unwrap_or(u64::MAX);
    file.take(limit).read_to_end(&mut bytes)?;
    let text = std::str::from_utf8(&bytes).unwrap_or_default().trim();
    let mut key = [0; KEY_BYTES];
    if bytes.len() == KEY_BYTES {
        key.copy_from_slice(&bytes);
    } else if hex::decode_to_slice(text, &mut key).is_err() {
        let text = "is no key: 32 bytes, or 64 hexadecimal digits";
        return Err(io::Error::other(text));
    }
    Ok(key)
}

/// Makes a key. It is on disk under its name, or there is none of that name.
fn create(path: &Path) -> io::Result<[u8; KEY_BYTES]> {
    let mut key = [0; KEY_BYTES];
    let drawn = SystemRandom::new().fill(&mut key);
    drawn.map_err(|_| io::Error::other("the system gives no random bytes"))?;
    durable::write(path, 0o600, format!("{}\n", hex::encode(key)).as_bytes())?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn id(secrets: &Secrets) -> String {
        secrets.key().expect("a key").id().to_owned()
    }

    #[test]
    fn a_key_is_made_once_and_for_its_owner_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let made = Secrets::load(directory.path(), &[]);
        let file = directory.path().join(FILE);
        let mode = std::fs::metadata(&file).expect("a file").mode();
        assert_eq!(mode & 0o7777, 0o600);
        let again = Secrets::load(directory.path(), &[id(&made)]);
        assert_eq!(id(&again), id(&made));
    }

    #[test]
    fn no_key_is_made_where_there_is_ciphertext() {
        let directory = tempfile::tempdir().expect("a directory");
        let used = [String::from("0123456789abcdef")];
        let secrets = Secrets::load(directory.path(), &used);
        let why = secrets.refused().expect("no key");
        assert!(why.contains("0123456789abcdef"), "{why}");
        assert!(!directory.path().join(FILE).exists());
        let other = create(&directory.path().join(FILE)).expect("a key");
        let secrets = Secrets::load(directory.path(), &used);
        let why = secrets.refused().expect("another key");
        assert!(
            why.contains("0123456789abcdef") && why.contains(Key::new(other).id()),
            "{why}"
        );
    }

    #[test]
    fn keys_that_others_can_read_and_files_that_are_no_keys_are_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join(FILE);
        std::fs::write(&file, "not a key").expect("a file");
        for mode in [0o640, 0o604, 0o600] {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&file, permissions).expect("a mode");
            let secrets = Secrets::load(directory.path(), &[]);
            let why = secrets.refused().expect("no key");
            assert_eq!(why.contains("chmod 0600"), mode != 0o600, "{why}");
        }
    }

    #[test]
    fn a_credential_goes_before_the_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let credentials = tempfile::tempdir().expect("a directory");
        std::fs::write(credentials.path().join(CREDENTIAL), [7; KEY_BYTES]).expect("a file");
        let found = Secrets::find(Some(credentials.path()), directory.path(), &[]);
        let found = found.expect("a key");
        assert_eq!(id(&found), Key::new([7; KEY_BYTES]).id());
        assert!(!directory.path().join(FILE).exists());
    }
}
