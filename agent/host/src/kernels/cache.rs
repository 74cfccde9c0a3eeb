//! Unpacked kernels by the SHA-256 of what they were unpacked from.
//!
//! A file appears under its digest only when it is whole and on disk. The least recently used ones
//! go when all together take more than the setting allows; a VMM that has one open keeps it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::io::AsyncReadExt;
use tokio::process::Command;

use super::error::KernelError;
use super::eviction::{TEMPORARY, evict, touch};
use super::layers::ExtractedFiles;
use crate::child::UNPACK_KERNEL;
use crate::helpers::{self, Helper, Memory};
use crate::layout::{absent_is_none, ensure_private_dir};
use crate::work::{ClosedElsewhere, Work, on_thread};

/// Longest that unpacking may take; the child's own CPU limit is the same.
const UNPACK_DEADLINE: Duration = Duration::from_secs(60);

/// The longest part of the child's message that is shown.
const MAX_MESSAGE_BYTES: u64 = 1024;

/// Digests of files that are remembered, so that a kernel is not read again for every start.
const MAX_REMEMBERED: usize = 256;

/// Where the cache is and what it may take.
#[derive(Debug, Clone)]
pub(crate) struct KernelCacheSettings {
    /// Directory of the unpacked kernels.
    pub(crate) dir: PathBuf,
    /// Directory of files taken out of images.
    pub(crate) extracted: PathBuf,
    /// The program that has the hidden subcommand `unpack-kernel`.
    pub(crate) helper: PathBuf,
    /// The files of each directory together may take this.
    pub(crate) max_bytes: u64,
}

/// The cache.
#[derive(Debug)]
pub(crate) struct KernelCache {
    settings: KernelCacheSettings,
    /// One lock for each file and each digest that is being looked for: the second waits for the first.
    busy: Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
    digests: Mutex<HashMap<FileVersion, String>>,
}

/// A kernel that has to be unpacked.
pub(crate) struct PackedKernel<'a> {
    /// Its path within the image, for messages.
    pub(crate) name: &'a str,
    /// The directory or layout that it is in.
    pub(crate) place: &'a Path,
    /// More is no kernel.
    pub(crate) max_bytes: u64,
}

/// A file and its contents, as far as the file system distinguishes versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct FileVersion {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileVersion {
    fn of(file: &File) -> io::Result<Self> {
        let meta = file.metadata()?;
        Ok(Self {
            device: meta.dev(),
            inode: meta.ino(),
            bytes: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        })
    }
}

impl KernelCache {
    pub(crate) fn new(settings: KernelCacheSettings) -> Self {
        Self {
            settings,
            busy: Mutex::default(),
            digests: Mutex::default(),
        }
    }

    pub(crate) fn extracted_files(&self) -> ExtractedFiles {
        ExtractedFiles {
            dir: self.settings.extracted.clone(),
            helper: self.settings.helper.clone(),
            max_bytes: self.settings.max_bytes,
        }
    }

    /// Removes what an agent was writing when it ended.
    pub(crate) fn remove_half_written(&self) -> io::Result<()> {
        for dir in [&self.settings.dir, &self.settings.extracted] {
            for entry in absent_is_none(fs::read_dir(dir))?.into_iter().flatten() {
                let entry = entry?;
                if entry.file_name().to_string_lossy().starts_with(TEMPORARY) {
                    absent_is_none(fs::remove_file(entry.path()))?;
                }
            }
        }
        Ok(())
    }

    /// The ELF inside of `input`, opened for reading.
    ///
    /// Whoever can write to `input` may do so at any time. Therefore what is hashed and unpacked is one
    /// private copy: a file of the cache always holds what its digest stands for.
    pub(crate) async fn unpacked(
        &self,
        packed: &PackedKernel<'_>,
        input: ClosedElsewhere<File>,
        work: &Work,
    ) -> Result<File, KernelError> {
        let (place, name) = (packed.place, packed.name);
        let file = input.into_inner();
        let looked_at = work.files(place, move || {
            let version = FileVersion::of(&file)?;
            Ok::<_, KernelError>((ClosedElsewhere::new(file), version))
        });
        let (input, version) = looked_at.await?;
        // Starts that need the same file wait for the first of them instead of copying it, too.
        let same_file = self.lock_of(&format!("{version:?}"));
        let _same_file = same_file.lock().await;
        let known = lock(&self.digests).get(&version).cloned();
        if let Some(digest) = known
            && let Some(file) = self.kept(&digest)?
        {
            return Ok(file);
        }
        let unpacking = format!("The kernel {name} is unpacked");
        work.set_progress("", &unpacking, (0, 0));
        let (dir, max_bytes) = (self.settings.dir.clone(), packed.max_bytes);
        let file = input.into_inner();
        let copied = work.files(place, move || {
            let copied = private_copy(&file, &dir, max_bytes)?;
            Ok::<_, KernelError>((copied, FileVersion::of(&file)?))
        });
        let (copied, version_then) = copied.await?;
        // The digest of a file that changed during the copy belongs to neither of its versions.
        if version_then == version {
            self.remember(version, copied.digest.clone());
        }
        let digest = copied.digest;
        let same_digest = self.lock_of(&digest);
        let _same_digest = same_digest.lock().await;
        if let Some(file) = self.kept(&digest)? {
            return Ok(file);
        }
        let memory = helpers::UNPACK_KERNEL.granted(Some(work)).await?;
        work.set_progress("", &unpacking, (0, 0));
        let path = self.settings.dir.join(&digest);
        let temporary = self.settings.dir.join(format!("{TEMPORARY}{digest}"));
        let result = self.unpack((copied.file, memory), name, &temporary, &path);
        let result = result.await;
        if result.is_err()
            && let Err(error) = absent_is_none(fs::remove_file(&temporary))
        {
            tracing::warn!(path = %temporary.display(), %error, "a half-written kernel stays behind");
        }
        result
    }

    /// The unpacked kernel of a digest, if the cache has it.
    fn kept(&self, digest: &str) -> io::Result<Option<File>> {
        let path = self.settings.dir.join(digest);
        let file = absent_is_none(File::open(&path))?;
        if let Some(file) = &file {
            touch(file, &path);
        }
        Ok(file)
    }

    fn remember(&self, version: FileVersion, digest: String) {
        let mut digests = lock(&self.digests);
        if digests.len() >= MAX_REMEMBERED {
            digests.clear();
        }
        digests.insert(version, digest);
    }

    async fn unpack(
        &self,
        (mut input, memory): (File, Memory),
        name: &str,
        temporary: &Path,
        path: &Path,
    ) -> Result<File, KernelError> {
        ensure_private_dir(&self.settings.dir)?;
        absent_is_none(fs::remove_file(temporary))?;
        let output = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o400)
            .open(temporary)?;
        input.seek(SeekFrom::Start(0))?;
        let failed = |message: String, is_final| KernelError::Unpack {
            path: name.to_owned(),
            message,
            is_final,
        };
        let mut command = Command::new(&self.settings.helper);
        command
            .arg(UNPACK_KERNEL)
            .env_clear()
            .stdin(Stdio::from(input))
            .stdout(Stdio::from(output.try_clone()?))
            .stderr(Stdio::piped());
        let mut helper = Helper::spawn(&mut command, memory)?;
        let child = helper.child();
        let mut complaint = Vec::new();
        let finished = tokio::time::timeout(UNPACK_DEADLINE, async {
            if let Some(stderr) = child.stderr.take() {
                stderr
                    .take(MAX_MESSAGE_BYTES)
                    .read_to_end(&mut complaint)
                    .await?;
            }
            child.wait().await
        })
        .await;
        let status = match finished {
            Ok(status) => status?,
            // Dropping the helper kills it.
            Err(_) => {
                return Err(failed(
                    format!("it took more than {UNPACK_DEADLINE:?}"),
                    false,
                ));
            }
        };
        if !status.success() {
            let text = String::from_utf8_lossy(&complaint).trim().to_owned();
            // One that was killed, or said nothing, met a limit or a lack of the host.
            let is_final = status.code().is_some() && !text.is_empty();
            let text = if text.is_empty() {
                status.to_string()
            } else {
                text
            };
            return Err(failed(text, is_final));
        }
        let (from, to) = (temporary.to_owned(), path.to_owned());
        let (dir, max_bytes) = (self.settings.dir.clone(), self.settings.max_bytes);
        let kept = on_thread(move || {
            output.sync_data()?;
            fs::rename(&from, &to)?;
            evict(&dir, &to, max_bytes)?;
            File::open(&to)
        });
        Ok(kept.await??)
    }

    fn lock_of(&self, key: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut busy = lock(&self.busy);
        busy.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = busy.get(key).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::default();
        busy.insert(key.to_owned(), Arc::downgrade(&lock));
        lock
    }
}

/// Nothing that holds one of the locks can leave its map half changed.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A copy of a file that nobody else can open, and its SHA-256.
struct PrivateCopy {
    file: File,
    digest: String,
}

/// Copies the file, and of one that is larger than allowed as much as shows that it is.
fn private_copy(mut input: &File, dir: &Path, max_bytes: u64) -> io::Result<PrivateCopy> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);

    ensure_private_dir(dir)?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = dir.join(format!("{TEMPORARY}copy-{number}"));
    absent_is_none(fs::remove_file(&path))?;
    let mut file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    fs::remove_file(&path)?;
    input.seek(SeekFrom::Start(0))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    let mut bounded = input.take(max_bytes.saturating_add(1));
    loop {
        let count = bounded.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        let read = buffer.get(..count).unwrap_or_default();
        hash.update(read);
        file.write_all(read)?;
    }
    Ok(PrivateCopy {
        file,
        digest: hex::encode(hash.finalize()),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// The cache, whose helper is a script of these lines.
    fn cache_with_helper(dir: &Path, script: &str) -> KernelCache {
        let helper = dir.join("helper");
        fs::write(&helper, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&helper, fs::Permissions::from_mode(0o755)).unwrap();
        KernelCache::new(KernelCacheSettings {
            dir: dir.join("kernels"),
            extracted: dir.join("files"),
            helper,
            max_bytes: 1 << 20,
        })
    }

    #[tokio::test]
    async fn a_kernel_that_changes_while_it_is_unpacked_is_kept_as_what_its_digest_stands_for() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = dir.path().join("vmlinuz");
        fs::write(&kernel, "good").unwrap();
        // The change comes when the digest has been taken and before the first byte is unpacked.
        let script = format!("printf evil > {}; exec /bin/cat", kernel.display());
        let cache = cache_with_helper(dir.path(), &script);
        let unpack = async || {
            let input = ClosedElsewhere::new(File::open(&kernel).unwrap());
            let packed = PackedKernel {
                name: "vmlinuz",
                place: dir.path(),
                max_bytes: 1 << 20,
            };
            let work = Work::default();
            let unpacked = cache.unpacked(&packed, input, &work).await.unwrap();
            io::read_to_string(unpacked).unwrap()
        };
        assert_eq!(unpack().await, "good");
        assert_eq!(unpack().await, "evil");
        for entry in fs::read_dir(dir.path().join("kernels")).unwrap() {
            let path = entry.unwrap().path();
            let digest = hex::encode(Sha256::digest(fs::read(&path).unwrap()));
            assert_eq!(path.file_name().unwrap().to_string_lossy(), digest);
        }
    }
}
