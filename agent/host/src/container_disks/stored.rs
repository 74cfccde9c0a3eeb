//! What there is to say of kept images.

use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use crate::image_defaults::ImageDefaults;

/// Fewest digits of a digest that name one.
const MIN_DIGITS: usize = 12;

/// A disk that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredImage {
    /// Digest of the manifest.
    pub digest: String,
    /// What people call it, sorted.
    pub names: Vec<String>,
    /// Hash of the disk's path in the image; empty: the only one in `/disk`.
    pub path_hash: String,
    /// Size that guests see.
    pub virtual_bytes: u64,
    /// What it takes on disk.
    pub disk_bytes: u64,
    /// When a guest was given it last.
    pub last_used: SystemTime,
    /// A VMM has it.
    pub in_use: bool,
    /// What the image says of machines, if it came from a registry.
    pub defaults: ImageDefaults,
    pub(super) path: PathBuf,
}

/// What disks and layers take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreUsage {
    /// Directory of the store.
    pub directory: PathBuf,
    /// Size of its file system.
    pub capacity_bytes: u64,
    /// What of it can still be written.
    pub available_bytes: u64,
    /// Layers of pulls that are not done.
    pub layers: usize,
    /// Bytes of these layers on disk.
    pub layer_bytes: u64,
    /// Water marks, in percent of the file system.
    pub marks: (u64, u64),
}

/// Why nothing is removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveImageError {
    /// There is none.
    #[error(
        "no image {0:?} is kept: a digest (12 digits at least) or the name by which it was pulled is meant"
    )]
    NotFound(String),
    /// A guest has it.
    #[error("the image {0:?} is in use by a guest: delete the guest first")]
    InUse(String),
    /// The directory of images cannot be read or changed.
    #[error("images cannot be inspected")]
    Host(#[from] io::Error),
}

impl StoredImage {
    /// Whether a text names it: by digest, by so many digits of it, or by name.
    pub(super) fn is_called(&self, text: &str) -> bool {
        let plain = |text: &str| text.trim_start_matches("docker://").to_owned();
        // The tag of a name may look like digits of a digest.
        let digits = ["sha256:", "sha512:"]
            .iter()
            .find_map(|algorithm| text.strip_prefix(algorithm))
            .unwrap_or(text);
        let own = self.digest.rsplit(':').next().unwrap_or(&self.digest);
        let is_name = self.names.iter().any(|name| plain(name) == plain(text));
        is_name || digits.len() >= MIN_DIGITS && own.starts_with(digits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_called_by_its_digest_by_twelve_digits_of_it_and_by_its_names() {
        let digits = "4f0a2b7c9d10".repeat(6)[..64].to_owned();
        let image = StoredImage {
            digest: format!("sha256:{digits}"),
            names: vec![String::from("docker://registry.example/a:1")],
            path_hash: String::new(),
            virtual_bytes: 0,
            disk_bytes: 0,
            last_used: SystemTime::UNIX_EPOCH,
            in_use: false,
            defaults: ImageDefaults::default(),
            path: PathBuf::new(),
        };
        for text in [
            &image.digest[..],
            &digits,
            "4f0a2b7c9d10",
            "registry.example/a:1",
        ] {
            assert!(image.is_called(text), "{text}");
        }
        for text in [
            "",
            "4f0a2b7c9d1",
            "4f0a2b7c9d11",
            "registry.example/a",
            "a:1",
        ] {
            assert!(!image.is_called(text), "{text}");
        }
    }
}
