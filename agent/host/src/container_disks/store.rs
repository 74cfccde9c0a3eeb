//! What is kept of images: to be shown, and removed by hand.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::statvfs::statvfs;

use super::ContainerDisks;
use super::collect::{by_age, is_in_use, remove_unused, size_of};
use super::stored::{RemoveImageError, StoreUsage, StoredImage};
use crate::layout::absent_is_none;
use crate::work::on_thread;

/// As often as the kubelet does it.
const COLLECT_EVERY: Duration = Duration::from_secs(300);

impl ContainerDisks {
    /// All disks that are kept, the one used last first.
    pub(crate) fn list(&self) -> io::Result<Vec<StoredImage>> {
        let called = self.names.called()?;
        let mut images = Vec::new();
        for kept in by_age(&self.disks())? {
            let Some(file) = absent_is_none(File::open(&kept.path))? else {
                continue;
            };
            let metadata = file.metadata()?;
            drop(file);
            let (digest, path_hash) = key_of(&kept.path);
            let names = called.iter().filter(|(of, _)| of.ends_with(&digest));
            let mut names: Vec<String> = names.map(|(_, name)| name.clone()).collect();
            names.sort();
            names.dedup();
            let digest = with_algorithm(&digest);
            images.push(StoredImage {
                defaults: self.names.defaults(&digest)?,
                digest,
                names,
                path_hash,
                virtual_bytes: metadata.len(),
                disk_bytes: metadata.blocks().saturating_mul(512),
                last_used: kept.used_at,
                in_use: is_in_use(&kept.path)?,
                path: kept.path,
            });
        }
        images.reverse();
        Ok(images)
    }

    /// Removes disks by digest or name; all of them, or none when one is not there or in use.
    ///
    /// # Errors
    /// See [`RemoveImageError`].
    pub(crate) fn remove(&self, wanted: &[String]) -> Result<Vec<StoredImage>, RemoveImageError> {
        let images = self.list()?;
        let mut meant: Vec<StoredImage> = Vec::new();
        for text in wanted {
            let mut found = images
                .iter()
                .filter(|image| image.is_called(text))
                .peekable();
            if found.peek().is_none() {
                return Err(RemoveImageError::NotFound(text.clone()));
            }
            for image in found {
                if image.in_use {
                    return Err(RemoveImageError::InUse(text.clone()));
                }
                if !meant.contains(image) {
                    meant.push(image.clone());
                }
            }
        }
        let mut removed = Vec::new();
        for image in meant {
            // A guest may have started meanwhile.
            if remove_unused(&image.path)? {
                removed.push(image);
            }
        }
        self.prune_names()?;
        Ok(removed)
    }

    /// Removes every disk that no guest has, and every layer that no pull has; or says what would go. Returns the disks, and
    /// the number and bytes of layers.
    pub(crate) fn prune(&self, is_dry: bool) -> io::Result<(Vec<StoredImage>, usize, u64)> {
        let goes = |path: &Path| -> io::Result<bool> {
            if is_dry {
                is_in_use(path).map(|in_use| !in_use)
            } else {
                remove_unused(path)
            }
        };
        let mut removed = Vec::new();
        for image in self.list()? {
            if !image.in_use && goes(&image.path)? {
                removed.push(image);
            }
        }
        let (mut layers, mut bytes) = (0, 0);
        for kept in by_age(&self.blobs())? {
            let size = size_of(&kept.path)?;
            if goes(&kept.path)? {
                layers += 1;
                bytes += size;
            }
        }
        if !is_dry {
            self.prune_names()?;
        }
        Ok((removed, layers, bytes))
    }

    /// Keeps the water marks also while nobody wants another image: guests' overlays grow beside those that nobody has. It
    /// ends with the disks.
    pub(crate) fn collect_now_and_then(self: &Arc<Self>) {
        let disks = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(COLLECT_EVERY).await;
                let Some(disks) = disks.upgrade() else { return };
                let collected = on_thread(move || {
                    let removed = disks.importer.collector().collect()?;
                    disks.prune_names()?;
                    Ok::<_, io::Error>(removed)
                });
                match collected.await.and_then(|collected| collected) {
                    Ok(0) => {}
                    Ok(removed) => {
                        tracing::info!(removed, "disks of images that no guest has were removed");
                    }
                    Err(error) => tracing::warn!(%error, "no room can be made for images"),
                }
            }
        });
    }

    fn prune_names(&self) -> io::Result<()> {
        let kept = by_age(&self.disks())?;
        let kept: HashSet<String> = kept.iter().map(|kept| key_of(&kept.path).0).collect();
        self.names.prune(|digest| {
            let digits = digest.rsplit(':').next().unwrap_or(digest);
            kept.contains(digits)
        })
    }

    /// What the store takes, and what its file system has.
    pub(crate) fn usage(&self) -> io::Result<StoreUsage> {
        let (directory, limits) = (self.importer.dir.clone(), self.importer.limits);
        // It is made with the first image.
        let there = directory.ancestors().find(|path| path.is_dir());
        let found = statvfs(there.unwrap_or(Path::new("/")))?;
        let unit = found.fragment_size();
        let (mut layers, mut layer_bytes) = (0, 0);
        for kept in by_age(&self.blobs())? {
            layers += 1;
            layer_bytes += size_of(&kept.path)?;
        }
        Ok(StoreUsage {
            directory,
            capacity_bytes: found.blocks().saturating_mul(unit),
            available_bytes: found.blocks_available().saturating_mul(unit),
            layers,
            layer_bytes,
            marks: (limits.high_percent, limits.low_percent),
        })
    }

    fn disks(&self) -> PathBuf {
        self.importer.dir.join("sha256")
    }

    fn blobs(&self) -> PathBuf {
        self.importer.puller.dir.join("blobs/sha256")
    }
}

/// Digits of the digest, and hash of the path, of a file's name.
fn key_of(path: &Path) -> (String, String) {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    match stem.split_once('-') {
        Some((digest, hash)) => (digest.to_owned(), hash.to_owned()),
        None => (stem.into_owned(), String::new()),
    }
}

/// The algorithm is known by the number of digits.
fn with_algorithm(digits: &str) -> String {
    let name = if digits.len() == 128 {
        "sha512"
    } else {
        "sha256"
    };
    format!("{name}:{digits}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_by_its_digest_and_the_hash_of_the_path() {
        let digits = "4f0a2b7c9d10".repeat(6)[..64].to_owned();
        let path = format!("/x/{digits}-0123456789abcdef.raw");
        assert_eq!(
            key_of(Path::new(&path)),
            (digits.clone(), String::from("0123456789abcdef"))
        );
        assert_eq!(with_algorithm(&digits), format!("sha256:{digits}"));
    }
}
