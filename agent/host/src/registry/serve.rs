//! Answers what a pull asks for: connections, files for blobs.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use nix::sys::statvfs::statvfs;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::connect::connect;
use super::{Progress, PullFailure, RegistrySettings, blobs};
use crate::child::{PullAsk, is_digest, send};

/// Longest line of a child.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// What came of a pull.
pub(super) enum Pulled {
    /// The `index.json` of the image, whose blobs are all there.
    New(Vec<u8>),
    /// The disk of this manifest was made before.
    Kept(String),
}

/// What answers are made of.
pub(super) struct Serving<'a> {
    pub(super) dir: &'a Path,
    pub(super) settings: &'a RegistrySettings,
    pub(super) is_kept: &'a (dyn Fn(&str) -> bool + Send + Sync),
    pub(super) progress: &'a Progress<'a>,
}

/// How often a layer that another pull fetches is asked for, a second apart: less than the child waits for an answer.
const TURNS: u32 = 200;

impl Serving<'_> {
    /// The file of a blob, once no other pull fetches it. A child holds one at a time, so two cannot wait for each other.
    async fn blob(&self, digest: &str, bytes: u64) -> io::Result<File> {
        for _ in 0..TURNS {
            match open_blob(self.dir, digest) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                opened => return opened.and_then(|file| self.with_room(file, digest, bytes)),
            }
        }
        open_blob(self.dir, digest)
    }

    /// A blob that would not fit is not begun.
    fn with_room(&self, file: File, digest: &str, bytes: u64) -> io::Result<File> {
        let wanted = bytes.saturating_sub(file.metadata()?.len());
        let found = statvfs(self.dir)?;
        let free = found
            .blocks_available()
            .saturating_mul(found.fragment_size());
        if wanted > free {
            let text = format!(
                "{digest}: {} MiB wanted, {} MiB free in {}: free space, or remove images that no guest has (kvmctl image prune)",
                wanted.div_ceil(1 << 20),
                free >> 20,
                self.dir.display()
            );
            return Err(io::Error::new(io::ErrorKind::StorageFull, text));
        }
        Ok(file)
    }

    /// Serves one child up to its last word; `None`: it ended without one.
    pub(super) async fn serve(&self, stream: UnixStream) -> Result<Option<Pulled>, PullFailure> {
        let mut stream = BufReader::new(stream);
        loop {
            let mut line = Vec::new();
            let mut bounded = (&mut stream).take(MAX_LINE_BYTES);
            if bounded.read_until(b'\n', &mut line).await? == 0 {
                return Ok(None);
            }
            match serde_json::from_slice(&line).map_err(io::Error::other)? {
                PullAsk::Connect { host, port } => {
                    let made = connect(&host, port, self.settings).await;
                    match made {
                        Ok(connection) => hand_over(&stream, connection.as_fd()).await?,
                        Err(why) => refuse(&mut stream, &why).await?,
                    }
                }
                PullAsk::Blob { digest, bytes } => match self.blob(&digest, bytes).await {
                    Ok(file) => hand_over(&stream, file.as_fd()).await?,
                    Err(error) => refuse(&mut stream, &error.to_string()).await?,
                },
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
                } => {
                    let index = serde_json::json!({
                        "schemaVersion": 2,
                        "manifests": [{"mediaType": media_type, "digest": digest, "size": bytes}],
                    });
                    return Ok(Some(Pulled::New(index.to_string().into_bytes())));
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

/// Sends a descriptor, once the child has read what came before.
async fn hand_over(stream: &BufReader<UnixStream>, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let socket = stream.get_ref();
    socket
        .async_io(tokio::io::Interest::WRITABLE, || {
            send(socket, &[descriptor])
        })
        .await
}

async fn refuse(stream: &mut BufReader<UnixStream>, why: &str) -> io::Result<()> {
    let why = why.replace('\n', " ");
    let line: String = why.chars().take(1000).collect();
    stream
        .get_mut()
        .write_all(format!("e{line}\n").as_bytes())
        .await
}

fn busy() -> io::Error {
    let text = "another pull fetches the same layer now";
    io::Error::new(io::ErrorKind::WouldBlock, text)
}

/// The file of a blob, for one pull at a time: the lock is the descriptor's.
fn open_blob(dir: &Path, digest: &str) -> io::Result<File> {
    if !is_digest(digest) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let name = digest.trim_start_matches("sha256:");
    let mut options = fs::OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600);
    let file = options.open(blobs(dir).join(name))?;
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
    use super::*;

    #[tokio::test]
    async fn a_layer_that_would_not_fit_is_not_begun() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(blobs(dir.path())).unwrap();
        let serving = Serving {
            dir: dir.path(),
            settings: &RegistrySettings::default(),
            is_kept: &|_| false,
            progress: &|_, _| {},
        };
        let digest = format!("sha256:{}", "a".repeat(64));
        let refused = serving
            .blob(&digest, 1 << 60)
            .await
            .unwrap_err()
            .to_string();
        for words in [
            &digest[..],
            "1099511627776 MiB wanted",
            "MiB free in",
            "kvmctl image prune",
        ] {
            assert!(refused.contains(words), "{words}: {refused}");
        }
        serving.blob(&digest, 1).await.unwrap();
        assert!(serving.blob("sha256:../../etc/passwd", 1).await.is_err());
    }
}
