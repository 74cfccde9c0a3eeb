//! `kvmlet pull-image`: fetches the manifest and the layers of one image, for [`crate::registry`].
//!
//! It talks to registries, so it has nothing else: nobody's rights, an empty network namespace, no file that it
//! could open. Standard input is a socket to the agent. A [`Request`] comes as JSON with its length before it; then
//! this process asks ([`Ask`], a line of JSON each) and the agent answers: a connection to a host, or a file for a
//! blob, as a descriptor with the byte `d`, or `e` and a line that says why not. The agent decides which hosts
//! may be reached, at each connection anew. The last word is [`Ask::Done`] or [`Ask::Refused`].

mod asking;
mod blob;
mod http;
mod manifest;
mod token;

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::confine::{Bounds, confine_with};
use crate::failure::chain;
use crate::helpers;
use asking::Agent;
use http::Client;
pub(crate) use manifest::is_digest;

/// The hidden subcommand's name.
pub(crate) const SUBCOMMAND: &str = "pull-image";

/// Longest request: certificates of authorities are in it.
const MAX_REQUEST_BYTES: u64 = 4 << 20;

/// The agent's answer when another pull has the file of a blob: ask again.
pub(crate) const BUSY: &str = "another pull fetches the same layer now";

/// What is to be pulled.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    /// `HOST[:PORT]` of the registry, or of its mirror.
    pub(crate) registry: String,
    /// Path of the repository.
    pub(crate) repository: String,
    /// A tag, or `sha256:HEX`.
    pub(crate) reference: String,
    /// Go's word for the architecture.
    pub(crate) architecture: String,
    /// Plain HTTP.
    pub(crate) is_insecure: bool,
    /// Certificates of authorities, PEM.
    pub(crate) authorities: String,
    /// User and password.
    pub(crate) credentials: Option<(String, String)>,
    pub(crate) max_layers: usize,
    pub(crate) max_layer_bytes: u64,
}

/// A request or a report of the child.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// A TCP connection.
    Connect { host: String, port: u16 },
    /// The file of a blob; what is in it already was fetched before.
    Blob {
        digest: String,
        bytes: u64,
        /// What the blobs that this process fetches meanwhile still lack.
        beside: u64,
    },
    /// Whether the image of this manifest is wanted. The agent ends this process when it has its disk.
    Manifest { digest: String },
    /// So much of the layers is there.
    Progress { bytes: u64, of: u64 },
    /// All is there: digest and media type of the manifest, and its size.
    Done {
        digest: String,
        media_type: String,
        bytes: u64,
    },
    /// It cannot be done.
    Refused {
        message: String,
        /// The registry answered 401 or 403.
        is_denied: bool,
    },
}

/// Errors that end a pull.
#[derive(Debug, thiserror::Error)]
pub(super) enum PullError {
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Denied(String),
    #[error("{what}")]
    Io {
        what: String,
        #[source]
        source: io::Error,
    },
}

impl PullError {
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

pub(super) fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The exit status says it all. That nobody reads the reason changes nothing.
            drop(writeln!(io::stderr(), "{SUBCOMMAND}: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// System calls of a client that is handed its connections, beyond those of all helpers.
const CALLS: [i64; 12] = [
    nix::libc::SYS_epoll_ctl,
    nix::libc::SYS_epoll_wait,
    nix::libc::SYS_epoll_pwait,
    nix::libc::SYS_recvfrom,
    nix::libc::SYS_recvmsg,
    nix::libc::SYS_sendto,
    nix::libc::SYS_sendmsg,
    nix::libc::SYS_shutdown,
    nix::libc::SYS_getsockopt,
    nix::libc::SYS_setsockopt,
    nix::libc::SYS_clock_gettime,
    nix::libc::SYS_fdatasync,
];

fn serve() -> io::Result<()> {
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let request = read_request(&socket)?;
    // What the runtime needs is made before the walls are up.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    let agent = runtime.block_on(async { Agent::new(socket) })?;
    let bounds = Bounds {
        address_space_bytes: helpers::PULL_IMAGE.bytes,
        cpu_seconds: 4 * 3600,
        output_bytes: request.max_layer_bytes,
    };
    confine_with(bounds, &CALLS)?;
    runtime.block_on(async {
        let last = match pull(&agent, &request).await {
            Ok(done) => done,
            Err(error) => Ask::Refused {
                // The agent reads no longer lines, and much of the text is the registry's.
                message: agent_domain::tame(&chain(&error), 1000),
                is_denied: matches!(error, PullError::Denied(_)),
            },
        };
        agent.say(&last).await
    })
}

async fn pull(agent: &Agent, request: &Request) -> Result<Ask, PullError> {
    let client = Client::new(agent, request)?;
    let manifest = manifest::fetch(&client, request).await?;
    agent.wants(&manifest.digest).await?;
    blob::fetch_all(&client, request, &manifest.blobs).await?;
    blob::keep(agent, &manifest.digest, &manifest.body).await?;
    Ok(Ask::Done {
        digest: manifest.digest,
        media_type: manifest.media_type,
        bytes: manifest.body.len() as u64,
    })
}

fn read_request(mut socket: &UnixStream) -> io::Result<Request> {
    // Connections may take their time.
    socket.set_read_timeout(Some(Duration::from_secs(300)))?;
    let mut length = [0; 8];
    socket.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > MAX_REQUEST_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = Vec::new();
    socket.take(length).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}
