//! Blobs to files: some at a time, each from where an earlier pull broke off, and never a byte that was not counted and
//! hashed.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use futures_util::{StreamExt, TryStreamExt, stream};
use hyper::StatusCode;
use hyper::header;
use sha2::{Digest, Sha256};

use super::asking::Agent;
use super::error::PullError;
use super::http::Client;
use super::manifest::Blob;
use super::messages::{Ask, Request};
use crate::free_space::ReserveGuard;

/// Blobs that are fetched at a time, as container runtimes do by default.
const AT_A_TIME: usize = 3;
/// Attempts at one blob, each from where the last one broke off.
const ATTEMPTS: u32 = 5;
/// Bytes between two words about progress.
const PROGRESS_EVERY: u64 = 8 << 20;
/// Bytes of an earlier pull that are read before other downloads have their turn.
const READ_AT_ONCE: u64 = 4 << 20;

/// Fetches all blobs that are not whole yet. The first that cannot be had ends it; what is there of the others is kept.
pub(super) async fn fetch_all(
    client: &Client<'_>,
    request: &Request,
    blobs: &[Blob],
) -> Result<(), PullError> {
    let fetching = Fetching {
        client,
        request,
        total: total(blobs),
        there: Cell::new(0),
        reported: Cell::new(0),
        lacking: Cell::new(0),
    };
    stream::iter(blobs)
        .map(Ok)
        .try_for_each_concurrent(AT_A_TIME, |blob| fetching.fetch(blob))
        .await
}

/// Bytes of all of them, each of which the manifest's bounds allow.
pub(super) fn total(blobs: &[Blob]) -> u64 {
    blobs.iter().map(|blob| blob.bytes).sum()
}

/// Keeps a manifest as a blob.
pub(super) async fn keep(agent: &Agent, digest: &str, body: &[u8]) -> Result<(), PullError> {
    let mut file = agent.file(digest, body.len() as u64, || 0).await?;
    let failed = || PullError::io("the manifest cannot be kept");
    file.set_len(0).map_err(failed())?;
    file.rewind().map_err(failed())?;
    file.write_all(body).map_err(failed())?;
    file.sync_data().map_err(failed())
}

/// The blobs of one image, and how far they are.
struct Fetching<'a> {
    client: &'a Client<'a>,
    request: &'a Request,
    /// Bytes of all blobs.
    total: u64,
    /// Bytes that are there, of blobs that were begun.
    there: Cell<u64>,
    /// How much of that was reported to the agent.
    reported: Cell<u64>,
    /// Bytes that blobs at hand still lack.
    lacking: Cell<u64>,
}

impl Fetching<'_> {
    async fn fetch(&self, blob: &Blob) -> Result<(), PullError> {
        let mut draft = BlobDraft::open(self, blob).await?;
        // What an earlier pull left may be damaged: by a power cut, above all.
        let is_resumed = draft.there > 0;
        draft.fetch_rest().await?;
        if is_resumed && draft.digest() != blob.digest {
            draft.start_anew()?;
            draft.fetch_rest().await?;
        }
        draft.finish()
    }

    /// So many bytes are there that were not.
    fn add(&self, bytes: u64) {
        self.there.set(self.there.get().saturating_add(bytes));
        self.lacking.set(self.lacking.get().saturating_sub(bytes));
    }

    /// The reverse.
    fn take_back(&self, bytes: u64) {
        self.there.set(self.there.get().saturating_sub(bytes));
        self.reported.set(self.reported.get().min(self.there.get()));
        self.lacking.set(self.lacking.get().saturating_add(bytes));
    }

    /// Reports to the agent how much is fetched, once for each [`PROGRESS_EVERY`] bytes.
    async fn report_progress(&self) -> Result<(), PullError> {
        let there = self.there.get();
        if there - self.reported.get() < PROGRESS_EVERY {
            return Ok(());
        }
        let progress = Ask::Progress {
            bytes: there,
            of: self.total,
        };
        let sent = self.client.agent.try_notify(&progress).await;
        if sent.map_err(PullError::io("the agent does not listen"))? {
            self.reported.set(there);
        }
        Ok(())
    }
}

struct BlobDraft<'a> {
    of: &'a Fetching<'a>,
    blob: &'a Blob,
    file: File,
    hash: Sha256,
    there: u64,
    guard: ReserveGuard,
}

impl<'a> BlobDraft<'a> {
    /// What is there is read again: its hash is not kept.
    async fn open(of: &'a Fetching<'a>, blob: &'a Blob) -> Result<Self, PullError> {
        let agent = of.client.agent;
        let file = agent.file(&blob.digest, blob.bytes, || of.lacking.get());
        let mut draft = Self {
            of,
            blob,
            file: file.await?,
            hash: Sha256::new(),
            there: 0,
            guard: ReserveGuard::new(of.request.reserve_bytes),
        };
        of.lacking.set(of.lacking.get().saturating_add(blob.bytes));
        let failed = || PullError::io(format!("{} cannot be read", blob.digest));
        draft.file.rewind().map_err(failed())?;
        loop {
            let before = draft.there;
            while draft.there < before + READ_AT_ONCE && draft.read_piece().map_err(failed())? {}
            if draft.there > blob.bytes {
                draft.start_anew()?;
                return Ok(draft);
            }
            if draft.there == before {
                return Ok(draft);
            }
            tokio::task::yield_now().await;
        }
    }

    /// Hashes a piece of what is in the file; whether there was one.
    fn read_piece(&mut self) -> io::Result<bool> {
        let mut buffer = vec![0; 256 << 10];
        let count = self.file.read(&mut buffer)?;
        let Some(read) = buffer.get(..count).filter(|read| !read.is_empty()) else {
            return Ok(false);
        };
        self.hash.update(read);
        self.there += count as u64;
        self.of.add(count as u64);
        Ok(true)
    }

    fn unwritten(&self) -> impl FnOnce(io::Error) -> PullError + use<> {
        let digest = self.blob.digest.clone();
        // That is the node's and not the registry's, so there is no point in asking it again.
        move |error| PullError::Refused(format!("{digest} cannot be written: {error}"))
    }

    fn start_anew(&mut self) -> Result<(), PullError> {
        self.file.set_len(0).map_err(self.unwritten())?;
        self.file.rewind().map_err(self.unwritten())?;
        self.hash = Sha256::new();
        self.of.take_back(self.there);
        self.there = 0;
        Ok(())
    }

    /// Fetches what is not there, in as many attempts as it may take.
    async fn fetch_rest(&mut self) -> Result<(), PullError> {
        let mut attempt = 1;
        while self.there < self.blob.bytes {
            match self.try_to_fetch_rest().await {
                Ok(()) => {}
                Err(PullError::Io { .. }) if attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn try_to_fetch_rest(&mut self) -> Result<(), PullError> {
        let (of, blob) = (self.of, self.blob);
        let path = format!("/v2/{}/blobs/{}", of.request.repository, blob.digest);
        let range = (header::RANGE, format!("bytes={}-", self.there));
        let headers = if self.there > 0 {
            vec![range]
        } else {
            Vec::new()
        };
        let answer = of.client.get(&path, &headers).await?;
        if answer.status != StatusCode::PARTIAL_CONTENT && self.there > 0 {
            // It gives no parts.
            self.start_anew()?;
        }
        // A write that failed half-way has moved it on.
        let end = SeekFrom::Start(self.there);
        self.file.seek(end).map_err(self.unwritten())?;
        let mut body = answer.body;
        while let Some(piece) = of.client.next_piece(&mut body).await? {
            let bytes = piece.len() as u64;
            if self.there + bytes > blob.bytes {
                return Err(PullError::Refused(format!(
                    "{} is longer than the {} bytes of its manifest",
                    blob.digest, blob.bytes
                )));
            }
            let fits = self.guard.before_write(&self.file, bytes);
            fits.map_err(self.unwritten())?;
            self.file.write_all(&piece).map_err(self.unwritten())?;
            self.hash.update(&piece);
            self.there += bytes;
            of.add(bytes);
            of.report_progress().await?;
        }
        if self.there < blob.bytes {
            let source = io::ErrorKind::UnexpectedEof.into();
            return Err(PullError::io(format!("{} ends early", blob.digest))(source));
        }
        Ok(())
    }

    fn digest(&self) -> String {
        let hash = self.hash.clone().finalize();
        format!("sha256:{}", hex::encode(hash))
    }

    /// Verifies the blob. What is wrong is not kept.
    fn finish(mut self) -> Result<(), PullError> {
        let digest = self.digest();
        if digest != self.blob.digest {
            self.start_anew()?;
            return Err(PullError::Refused(format!(
                "the registry sent other bytes for {}: their digest is {digest}",
                self.blob.digest
            )));
        }
        let synced = self.file.sync_data().map_err(self.unwritten());
        if synced.is_err() {
            // Linux takes what was not written for clean now: a sync that is tried again would succeed without it.
            self.start_anew()?;
        }
        synced
    }
}

impl Drop for BlobDraft<'_> {
    fn drop(&mut self) {
        let lacking = self.of.lacking.get();
        let own = self.blob.bytes.saturating_sub(self.there);
        self.of.lacking.set(lacking.saturating_sub(own));
    }
}
