//! A registry of the images in an OCI layout, which misbehaves as its orders say: `image-registry ADDRESS LAYOUT ORDERS`.
//!
//! It speaks HTTP without TLS and what a pull needs of the distribution specification: manifests by tag or digest, blobs,
//! whole or from an offset on. Before each blob it looks for files in the directory `ORDERS`:
//!
//! | File | Its content |
//! | --- | --- |
//! | `rate` | bytes per second of each connection |
//! | `break` | bytes of a body after which the connection breaks |
//! | `corrupt` | digest of the blob whose last byte is another |
//! | `redirect` | address that a blob is said to be at |
//! | `log` | to which a line is added: digest, offset, blobs that are sent at this moment |
//!
//! An image of the layout that has no tag answers to every tag that no other has. It runs until it is killed.

#![forbid(unsafe_code)]

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;

/// Pieces that a body is sent in.
const PIECE_BYTES: usize = 16 << 10;
/// Longest head of a request.
const MAX_HEAD_BYTES: u64 = 16 << 10;
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const REF_NAME: &str = "/annotations/org.opencontainers.image.ref.name";

struct Registry {
    layout: PathBuf,
    orders: PathBuf,
    /// Blobs that are sent.
    active: AtomicU32,
}

/// A blob that is being sent.
struct Active<'a> {
    all: &'a AtomicU32,
    /// So many are, this one included.
    number: u32,
}

impl<'a> Active<'a> {
    fn begin(all: &'a AtomicU32) -> Self {
        let number = all.fetch_add(1, Ordering::SeqCst) + 1;
        Self { all, number }
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(1, Ordering::SeqCst);
    }
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, layout, orders] = arguments.as_slice() else {
        anyhow::bail!("usage: image-registry ADDRESS LAYOUT ORDERS");
    };
    let registry = Arc::new(Registry {
        layout: layout.into(),
        orders: orders.into(),
        active: AtomicU32::new(0),
    });
    let listener = TcpListener::bind(address).with_context(|| address.clone())?;
    println!("image-registry: listens on {address}");
    for stream in listener.incoming() {
        let (registry, stream) = (Arc::clone(&registry), stream?);
        thread::spawn(move || {
            if let Err(error) = registry.answer(&stream) {
                eprintln!("image-registry: {error:#}");
            }
        });
    }
    Ok(())
}

impl Registry {
    fn answer(&self, stream: &TcpStream) -> anyhow::Result<()> {
        let (path, from) = request(stream)?;
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        match parts.as_slice() {
            ["v2", ""] => head(stream, "200 OK", "text/plain", 0, ""),
            ["v2", .., "manifests", reference] => {
                let Some(digest) = self.manifest(reference)? else {
                    return head(stream, "404 Not Found", "text/plain", 0, "");
                };
                let body = fs::read(self.blob(&digest)).context("a manifest")?;
                head(stream, "200 OK", MANIFEST, body.len() as u64, "")?;
                Ok((&mut &*stream).write_all(&body)?)
            }
            ["v2", .., "blobs", digest] => {
                let active = Active::begin(&self.active);
                self.log(&format!("{digest} {from} {}", active.number))?;
                self.send_blob(stream, digest, from, active)
            }
            _ => head(stream, "404 Not Found", "text/plain", 0, ""),
        }
    }

    fn blob(&self, digest: &str) -> PathBuf {
        let digits = digest.trim_start_matches("sha256:");
        self.layout.join("blobs/sha256").join(digits)
    }

    fn manifest(&self, reference: &str) -> anyhow::Result<Option<String>> {
        if reference.starts_with("sha256:") {
            return Ok(Some(reference.to_owned()));
        }
        let index: Value = serde_json::from_slice(&fs::read(self.layout.join("index.json"))?)?;
        let manifests = index["manifests"].as_array().context("no manifests")?;
        let found = manifests
            .iter()
            .find(|it| it.pointer(REF_NAME).and_then(Value::as_str) == Some(reference));
        let found = found.or_else(|| manifests.iter().find(|it| it.pointer(REF_NAME).is_none()));
        Ok(found.and_then(|it| Some(it["digest"].as_str()?.to_owned())))
    }

    /// What a file of the orders says, if it is there.
    fn order(&self, name: &str) -> Option<String> {
        let text = fs::read_to_string(self.orders.join(name)).ok()?;
        Some(text.trim().to_owned())
    }

    fn log(&self, line: &str) -> anyhow::Result<()> {
        let log = self.orders.join("log");
        let mut log = OpenOptions::new().append(true).create(true).open(log)?;
        Ok(log.write_all(format!("{line}\n").as_bytes())?)
    }

    fn send_blob(
        &self,
        mut stream: &TcpStream,
        digest: &str,
        from: u64,
        active: Active<'_>,
    ) -> anyhow::Result<()> {
        if let Some(address) = self.order("redirect") {
            let location = format!("Location: {address}\r\n");
            return head(stream, "307 Temporary Redirect", "text/plain", 0, &location);
        }
        let mut file = File::open(self.blob(digest)).context("a blob")?;
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(from))?;
        let rest = size.saturating_sub(from);
        let kind = "application/octet-stream";
        if from > 0 {
            let range = format!("Content-Range: bytes {from}-{}/{size}\r\n", size - 1);
            head(stream, "206 Partial Content", kind, rest, &range)?;
        } else {
            head(stream, "200 OK", kind, rest, "")?;
        }
        let number = |name| self.order(name).and_then(|text| text.parse::<u64>().ok());
        let (rate, breaks_after) = (number("rate"), number("break"));
        let is_corrupt = self.order("corrupt").as_deref() == Some(digest);
        let (mut sent, mut piece) = (0, vec![0; PIECE_BYTES]);
        let mut active = Some(active);
        loop {
            let count = file.read(&mut piece)?;
            if count == 0 || breaks_after.is_some_and(|limit| sent >= limit) {
                return Ok(());
            }
            sent += count as u64;
            let bytes = &mut piece[..count];
            if is_corrupt && sent == rest {
                bytes[count - 1] ^= 1;
            }
            if let Some(rate) = rate {
                let nanos = count as u64 * 1_000_000_000 / rate.max(1);
                // Limits the rate: the time that the piece takes at that rate.
                thread::sleep(Duration::from_nanos(nanos));
            }
            if sent == rest {
                // Whoever has all of it may ask for another one before this thread goes on.
                active.take();
            }
            stream.write_all(bytes)?;
        }
    }
}

/// The path that is asked for, and from which offset on.
fn request(stream: &TcpStream) -> anyhow::Result<(String, u64)> {
    let mut lines = BufReader::new(stream.take(MAX_HEAD_BYTES)).lines();
    let first = lines.next().context("nothing is asked")??;
    let mut words = first.split(' ');
    let path = words.nth(1).context("no path")?.to_owned();
    let mut from = 0;
    for line in lines {
        let line = line?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        if name.eq_ignore_ascii_case("range") {
            let range = value.trim().strip_prefix("bytes=");
            let offset = range.and_then(|range| range.strip_suffix('-'));
            from = offset.context("a range of another kind")?.parse()?;
        }
    }
    Ok((path, from))
}

fn head(
    mut stream: &TcpStream,
    status: &str,
    kind: &str,
    bytes: u64,
    more: &str,
) -> anyhow::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {bytes}\r\n{more}Connection: close\r\n\r\n"
    );
    Ok(stream.write_all(head.as_bytes())?)
}
