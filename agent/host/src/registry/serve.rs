//! Answers what a pull asks for: connections, files for blobs.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_confined::send;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::blobs::{directory, tempfile_in};
use super::connect::connect;
use super::failure::PullFailure;
use super::fetches::Fetcher;
use super::settings::RegistrySettings;
use crate::child::{PULL_IS_BUSY, PullAsk, is_digest};
use crate::dialer::Dialer;
use crate::free_space::SpaceReclaimer;
use crate::image_defaults::ImageDefaults;

/// Longest line of a child.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// Result of a pull.
#[derive(Debug)]
pub(super) enum Pulled {
    /// The image, whose blobs are all there.
    New(Fetched),
    /// The disk of this manifest was made before.
    Kept(String),
}

/// What a child has fetched.
#[derive(Debug)]
pub(super) struct Fetched {
    /// The `index.json` of the image.
    pub(super) index: Vec<u8>,
    /// Its blobs by digest. Whoever removes their names meanwhile takes nothing from who has them open.
    pub(super) blobs: HashMap<String, File>,
    /// What its configuration says of machines.
    pub(super) defaults: ImageDefaults,
}

/// Hears how much of how much is done.
pub(super) type Progress<'a> = dyn Fn(u64, u64) + Send + Sync + 'a;

/// What answers are made of.
pub(super) struct Serving<'a> {
    pub(super) dir: &'a Path,
    /// Blobs that one child may have.
    pub(super) max_blobs: usize,
    pub(super) settings: &'a RegistrySettings,
    /// How long hosts may take to answer.
    pub(super) patience: Duration,
    pub(super) is_kept: &'a (dyn Fn(&str) -> bool + Send + Sync),
    pub(super) progress: &'a Progress<'a>,
    pub(super) fetcher: Fetcher,
    pub(super) dialer: &'a Dialer,
    pub(super) reclaimer: &'a SpaceReclaimer,
}

impl Serving<'_> {
    /// The file of a blob for the child, and another descriptor of it, without its lock, for afterwards. It has no name while
    /// another registry sends the same blob to the one that has.
    fn keep_blob(
        &self,
        blobs: &mut HashMap<String, File>,
        digest: String,
        bytes: u64,
        beside: u64,
    ) -> io::Result<File> {
        if blobs.len() >= self.max_blobs && !blobs.contains_key(&digest) {
            let text = format!("more than {} layers cannot be had", self.max_blobs);
            return Err(io::Error::other(text));
        }
        let (file, kept) = match open_blob(self.dir, &digest) {
            Ok(file) => {
                self.fetcher.note(&digest);
                // Nobody removes the name while this one has the lock.
                (file, File::open(path_of(self.dir, &digest))?)
            }
            Err(error) if is_busy(&error) && self.fetcher.is_from_elsewhere(&digest) => {
                let file = tempfile_in(self.dir)?;
                let kept = file.try_clone()?;
                (file, kept)
            }
            Err(error) => return Err(error),
        };
        self.check_free_space(&digest, &file, bytes, beside)?;
        blobs.insert(digest, kept);
        Ok(file)
    }

    /// Refuses a blob that would not fit `beside` the bytes that other blobs of the image still lack.
    fn check_free_space(
        &self,
        digest: &str,
        file: &File,
        bytes: u64,
        beside: u64,
    ) -> io::Result<()> {
        let wanted = bytes.saturating_sub(file.metadata()?.len());
        let wanted = wanted.saturating_add(beside);
        let space = self.reclaimer.limits.free_space_in(self.dir)?;
        space.check(digest, wanted, self.dir)
    }

    /// As [`Self::keep_blob`]. Where a blob would not fit, what nobody has is removed first.
    async fn keep_or_reclaim(
        &self,
        blobs: &mut HashMap<String, File>,
        digest: String,
        (bytes, beside): (u64, u64),
    ) -> io::Result<File> {
        match self.keep_blob(blobs, digest.clone(), bytes, beside) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                self.reclaimer.reclaim(bytes.saturating_add(beside)).await?;
                self.keep_blob(blobs, digest, bytes, beside)
            }
            other => other,
        }
    }

    /// Serves one child up to its last word; `None`: it ended without one.
    pub(super) async fn serve(&self, stream: UnixStream) -> Result<Option<Pulled>, PullFailure> {
        let mut stream = BufReader::new(stream);
        let mut blobs = HashMap::new();
        loop {
            let mut line = Vec::new();
            let mut bounded = (&mut stream).take(MAX_LINE_BYTES);
            let read = bounded.read_until(b'\n', &mut line).await;
            if read.or_else(unless_gone)? == 0 {
                return Ok(None);
            }
            match serde_json::from_slice(&line).map_err(io::Error::other)? {
                PullAsk::Connect { host, port } => {
                    let made =
                        connect(&host, port, self.settings, self.patience, self.dialer).await;
                    match made {
                        Ok(connection) => hand_over(&stream, connection.as_fd()).await?,
                        Err(why) => refuse(&mut stream, &why).await?,
                    }
                }
                PullAsk::Blob {
                    digest,
                    bytes,
                    beside,
                } => {
                    let sizes = (bytes, beside);
                    match self.keep_or_reclaim(&mut blobs, digest, sizes).await {
                        Ok(file) => hand_over(&stream, file.as_fd()).await?,
                        Err(error) => refuse(&mut stream, &error.to_string()).await?,
                    }
                }
                PullAsk::Manifest { digest } => {
                    if is_digest(&digest) && (self.is_kept)(&digest) {
                        return Ok(Some(Pulled::Kept(digest)));
                    }
                    refuse(&mut stream, "wanted").await?;
                }
                PullAsk::Progress { bytes, of } => (self.progress)(bytes, of),
                PullAsk::Done {
                    digest,
                    media_type,
                    bytes,
                    defaults,
                } => {
                    // The child reads what the registry says: its word is judged again.
                    let defaults = ImageDefaults::of_variables(&defaults.variables());
                    let index = serde_json::json!({
                        "schemaVersion": 2,
                        "manifests": [{"mediaType": media_type, "digest": digest, "size": bytes}],
                    });
                    let index = index.to_string().into_bytes();
                    return Ok(Some(Pulled::New(Fetched {
                        index,
                        blobs,
                        defaults,
                    })));
                }
                PullAsk::Refused { message, is_denied } => {
                    let message = agent_domain::tame(&message, 1000);
                    return Err(if is_denied {
                        PullFailure::Denied(message)
                    } else {
                        PullFailure::Refused(message)
                    });
                }
            }
        }
    }
}

/// A child that has ended is no error of the node's: its last word may still be read, behind what it asked for before.
fn unless_gone<T: Default>(error: io::Error) -> io::Result<T> {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Ok(T::default()),
        _ => Err(error),
    }
}

/// Sends a descriptor, once the child has read what came before.
async fn hand_over(stream: &BufReader<UnixStream>, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let socket = stream.get_ref();
    socket
        .async_io(tokio::io::Interest::WRITABLE, || {
            send(socket, &[descriptor])
        })
        .await
        .or_else(unless_gone)
}

async fn refuse(stream: &mut BufReader<UnixStream>, why: &str) -> io::Result<()> {
    let why = why.replace('\n', " ");
    let line: String = why.chars().take(1000).collect();
    stream
        .get_mut()
        .write_all(format!("e{line}\n").as_bytes())
        .await
        .or_else(unless_gone)
}

fn busy() -> io::Error {
    io::Error::new(io::ErrorKind::WouldBlock, PULL_IS_BUSY)
}

fn is_busy(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

fn path_of(dir: &Path, digest: &str) -> PathBuf {
    directory(dir).join(digest.trim_start_matches("sha256:"))
}

/// The file of a blob, for one pull at a time: the lock is the descriptor's.
fn open_blob(dir: &Path, digest: &str) -> io::Result<File> {
    if !is_digest(digest) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut options = fs::OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600);
    let file = options.open(path_of(dir, digest))?;
    file.try_lock().map_err(|error| match error {
        fs::TryLockError::WouldBlock => busy(),
        fs::TryLockError::Error(error) => error,
    })?;
    // Whoever had it may have removed its name before the lock was free.
    if file.metadata()?.nlink() == 0 {
        return Err(busy());
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Write as _;

    use super::super::fetches::Fetches;
    use super::*;
    use crate::free_space::ImageStoreLimits;

    fn serving<'a>(dir: &'a Path, fetches: &Fetches, registry: &str) -> Serving<'a> {
        Serving {
            // No test connects.
            dialer: Box::leak(Box::new(Dialer::of_this_process())),
            dir,
            max_blobs: 1,
            settings: const {
                &RegistrySettings {
                    hosts: BTreeMap::new(),
                }
            },
            patience: Duration::from_secs(60),
            is_kept: &|_| false,
            progress: &|_, _| {},
            fetcher: fetches.begin(registry),
            reclaimer: Box::leak(Box::new(SpaceReclaimer::new(
                // Whatever of this machine's file system is free.
                ImageStoreLimits {
                    reserve_bytes: Some(0),
                    ..ImageStoreLimits::default()
                },
                |_| Err(io::ErrorKind::Unsupported.into()),
            ))),
        }
    }

    #[test]
    fn a_layer_that_would_not_fit_is_not_begun() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory(dir.path())).unwrap();
        let serving = serving(dir.path(), &Fetches::default(), "registry.example");
        let digest = format!("sha256:{}", "a".repeat(64));
        let blob =
            |bytes, beside| serving.keep_blob(&mut HashMap::new(), digest.clone(), bytes, beside);
        // Whether it is this layer that is too large, or those that are fetched beside it.
        for (bytes, beside) in [(1 << 60, 0), (1, (1 << 60) - 1)] {
            let refused = blob(bytes, beside).unwrap_err();
            let refused = refused.to_string();
            for words in [
                &digest[..],
                "1099511627776 MiB wanted",
                "MiB free in",
                "kvmctl image prune",
            ] {
                assert!(refused.contains(words), "{words}: {refused}");
            }
        }
        let held = blob(1, 0).unwrap();
        let busy = blob(1, 0).unwrap_err().to_string();
        assert_eq!(busy, PULL_IS_BUSY);
        drop(held);
        blob(1, 0).unwrap();
        let refused =
            serving.keep_blob(&mut HashMap::new(), "sha256:../../etc/passwd".into(), 1, 0);
        assert!(refused.is_err());
        let other = format!("sha256:{}", "b".repeat(64));
        let mut kept = HashMap::new();
        for again in [&digest, &digest] {
            serving.keep_blob(&mut kept, again.clone(), 1, 0).unwrap();
        }
        let refused = serving.keep_blob(&mut kept, other, 1, 0).unwrap_err();
        assert!(refused.to_string().contains("more than 1 layers"));
    }

    #[tokio::test]
    async fn the_last_word_of_a_child_is_read_behind_what_it_no_longer_waits_for() {
        let dir = tempfile::tempdir().unwrap();
        let serving = serving(dir.path(), &Fetches::default(), "registry.example");
        let last = PullAsk::Refused {
            message: String::from("it leads elsewhere"),
            is_denied: false,
        };
        let manifest = PullAsk::Manifest {
            digest: format!("sha256:{}", "a".repeat(64)),
        };
        for ends_with in [Some(last), None] {
            let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            for ask in std::iter::once(&manifest).chain(&ends_with) {
                let mut line = serde_json::to_vec(ask).unwrap();
                line.push(b'\n');
                (&theirs).write_all(&line).unwrap();
            }
            drop(theirs);
            let ours = UnixStream::from_std(ours).unwrap();
            match (serving.serve(ours).await, &ends_with) {
                (Err(PullFailure::Refused(why)), Some(_)) => assert_eq!(why, "it leads elsewhere"),
                (Ok(None), None) => {}
                (other, _) => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_layer_that_another_registry_sends_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory(dir.path())).unwrap();
        let fetches = Fetches::default();
        let digest = format!("sha256:{}", "a".repeat(64));
        let named = path_of(dir.path(), &digest);
        let slow = serving(dir.path(), &fetches, "slow.example");
        let same = serving(dir.path(), &fetches, "slow.example");
        let other = serving(dir.path(), &fetches, "other.example");
        let mut kept = HashMap::new();
        let _held = slow
            .keep_blob(&mut HashMap::new(), digest.clone(), 1, 0)
            .unwrap();
        let waits = same.keep_blob(&mut HashMap::new(), digest.clone(), 1, 0);
        assert_eq!(waits.unwrap_err().to_string(), PULL_IS_BUSY);
        let mut file = other.keep_blob(&mut kept, digest.clone(), 1, 0).unwrap();
        file.write_all(b"x").unwrap();
        assert_eq!(kept.get(&digest).unwrap().metadata().unwrap().len(), 1);
        assert_eq!(fs::metadata(named).unwrap().len(), 0);
    }
}
