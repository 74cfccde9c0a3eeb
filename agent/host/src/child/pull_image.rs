//! `kvmlet pull-image`: fetches the manifest and the layers of one image, for [`crate::registry`].
//!
//! It talks to registries, so it has nothing else: nobody's rights, an empty network namespace, no file that it
//! could open. Standard input is a socket to the agent. A [`Request`] comes as JSON with its length before it; then
//! this process asks ([`Ask`], a line of JSON each) and the agent answers: a connection to a host, or a file for a
//! blob, as a descriptor with the byte `d`, or `e` and a line that says why not. The agent decides which hosts
//! may be reached, at each connection anew. The last word is [`Ask::Done`] or [`Ask::Refused`].

mod asking;
mod blob;
mod error;
mod http;
mod manifest;
mod messages;
mod token;

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::failure::chain;
use crate::helpers;
use agent_confined::{Bounds, confine_with};
use asking::Agent;
use error::PullError;
use http::Client;
pub(crate) use manifest::is_digest;
pub(crate) use messages::{Ask, BUSY, Request};

/// The hidden subcommand's name.
pub(crate) const SUBCOMMAND: &str = "pull-image";

/// Longest request: certificates of authorities are in it.
const MAX_REQUEST_BYTES: u64 = 4 << 20;

/// System calls of a client that is handed its connections, beyond those of all helpers.
const CALLS: [i64; 13] = [
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
    nix::libc::SYS_fstatfs,
];

pub(super) fn serve() -> io::Result<()> {
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
        agent.notify(&last).await
    })
}

async fn pull(agent: &Agent, request: &Request) -> Result<Ask, PullError> {
    let client = Client::new(agent, request)?;
    let manifest = manifest::fetch(&client, request).await?;
    let of = blob::total(&manifest.blobs);
    let total = Ask::Progress { bytes: 0, of };
    let failed = PullError::io("the size cannot be reported");
    agent.notify(&total).await.map_err(failed)?;
    agent.wants(&manifest.digest).await?;
    blob::fetch_all(&client, request, &manifest.blobs).await?;
    let defaults = manifest::defaults(&client, request, &manifest).await?;
    blob::keep(agent, &manifest.digest, &manifest.body).await?;
    Ok(Ask::Done {
        digest: manifest.digest,
        media_type: manifest.media_type,
        bytes: manifest.body.len() as u64,
        defaults,
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
