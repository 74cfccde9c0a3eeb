//! Blobs to files: from where an earlier pull broke off, and never a byte that was not counted and hashed.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};

use hyper::StatusCode;
use hyper::header;
use sha2::{Digest, Sha256};

use super::http::{Client, next_piece};
use super::manifest::Blob;
use super::{Agent, Ask, PullError, Request, file_of};

/// Attempts at one blob, each from where the last one broke off.
const ATTEMPTS: u32 = 5;
/// Bytes between two words about progress.
const PROGRESS_EVERY: u64 = 8 << 20;

/// Fetches a blob that is not whole yet. `before` is what was fetched before it, of how much.
pub(super) async fn fetch(
    client: &mut Client<'_>,
    request: &Request,
    blob: &Blob,
    before: (u64, u64),
) -> Result<(), PullError> {
    let mut draft = BlobDraft::open(client.agent, blob)?;
    let mut attempt = 1;
    while draft.there < blob.bytes {
        let outcome = draft.fetch_rest(client, request, blob, before).await;
        match outcome {
            Ok(()) => {}
            Err(PullError::Io { .. }) if attempt < ATTEMPTS => attempt += 1,
            Err(error) => return Err(error),
        }
    }
    draft.finish(blob)
}

/// Keeps a manifest as a blob.
pub(super) fn keep(agent: &Agent, digest: &str, body: &[u8]) -> Result<(), PullError> {
    let mut file = file_of(agent, digest, body.len() as u64)?;
    let failed = || PullError::io("the manifest cannot be kept");
    file.set_len(0).map_err(failed())?;
    file.rewind().map_err(failed())?;
    file.write_all(body).map_err(failed())?;
    file.sync_data().map_err(failed())
}

struct BlobDraft {
    file: File,
    hash: Sha256,
    there: u64,
}

impl BlobDraft {
    /// What is there is read again: its hash is not kept.
    fn open(agent: &Agent, blob: &Blob) -> Result<Self, PullError> {
        let mut file = file_of(agent, &blob.digest, blob.bytes)?;
        let failed = || PullError::io(format!("{} cannot be read", blob.digest));
        let mut hash = Sha256::new();
        let mut there = 0;
        let mut buffer = vec![0; 256 << 10];
        file.rewind().map_err(failed())?;
        loop {
            let count = file.read(&mut buffer).map_err(failed())?;
            let Some(read) = buffer.get(..count).filter(|read| !read.is_empty()) else {
                break;
            };
            hash.update(read);
            there += count as u64;
        }
        let mut opened = Self { file, hash, there };
        if there > blob.bytes {
            opened.start_anew(blob)?;
        }
        Ok(opened)
    }

    fn start_anew(&mut self, blob: &Blob) -> Result<(), PullError> {
        let failed = || PullError::io(format!("{} cannot be written", blob.digest));
        self.file.set_len(0).map_err(failed())?;
        self.file.seek(SeekFrom::Start(0)).map_err(failed())?;
        self.hash = Sha256::new();
        self.there = 0;
        Ok(())
    }

    async fn fetch_rest(
        &mut self,
        client: &mut Client<'_>,
        request: &Request,
        blob: &Blob,
        (done, total): (u64, u64),
    ) -> Result<(), PullError> {
        let path = format!("/v2/{}/blobs/{}", request.repository, blob.digest);
        let range = (header::RANGE, format!("bytes={}-", self.there));
        let headers = if self.there > 0 {
            vec![range]
        } else {
            Vec::new()
        };
        let answer = client.get(&path, &headers).await?;
        if answer.status != StatusCode::PARTIAL_CONTENT && self.there > 0 {
            // It gives no parts.
            self.start_anew(blob)?;
        }
        let unwritten = || PullError::io(format!("{} cannot be written", blob.digest));
        // A write that failed half-way has moved it on.
        let end = SeekFrom::Start(self.there);
        self.file.seek(end).map_err(unwritten())?;
        let mut body = answer.body;
        let mut told = self.there;
        while let Some(piece) = next_piece(&mut body).await? {
            if self.there + piece.len() as u64 > blob.bytes {
                return Err(PullError::Refused(format!(
                    "{} is longer than the {} bytes of its manifest",
                    blob.digest, blob.bytes
                )));
            }
            self.file.write_all(&piece).map_err(unwritten())?;
            self.hash.update(&piece);
            self.there += piece.len() as u64;
            if self.there - told >= PROGRESS_EVERY {
                told = self.there;
                let progress = Ask::Progress {
                    bytes: done + self.there,
                    of: total,
                };
                let said = client.agent.say(&progress);
                said.map_err(PullError::io("the agent does not listen"))?;
            }
        }
        if self.there < blob.bytes {
            let source = std::io::ErrorKind::UnexpectedEof.into();
            return Err(PullError::io(format!("{} ends early", blob.digest))(source));
        }
        Ok(())
    }

    /// Verifies the blob. What is wrong is not kept.
    fn finish(mut self, blob: &Blob) -> Result<(), PullError> {
        let digest = format!("sha256:{}", hex::encode(self.hash.finalize_reset()));
        if digest != blob.digest {
            self.start_anew(blob)?;
            return Err(PullError::Refused(format!(
                "the registry sent other bytes for {}: their digest is {digest}",
                blob.digest
            )));
        }
        let failed = PullError::io(format!("{} cannot be written", blob.digest));
        self.file.sync_data().map_err(failed)
    }
}
