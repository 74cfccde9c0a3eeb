//! Helpers outside of the agent's service: each in a scope or cgroup of its own, as VMMs of guests are.
//!
//! What such a helper takes of memory and CPUs is not the service's, and neither do the service's rules for packets bind its
//! sockets. It is moved before it gets its orders, so it has taken next to nothing yet.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use tokio::process::{Child, Command};

use crate::sandbox::{Limits, Sandbox};

/// What helpers of one kind are called and may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    /// The word in the names of their scopes.
    pub(crate) word: &'static str,
    pub(crate) memory_bytes: u64,
    /// Processes and threads.
    pub(crate) tasks: u64,
}

impl Kind {
    fn limits(self) -> Limits {
        Limits {
            memory_bytes: self.memory_bytes,
            tasks: self.tasks,
            cpu_weight: 100,
            cpu_microseconds: None,
            cpus: None,
        }
    }
}

/// Where one helper lives.
#[derive(Debug)]
pub(crate) struct Scope {
    sandbox: Arc<Sandbox>,
    name: String,
}

impl Scope {
    /// Moves a helper that runs.
    pub(crate) async fn of(sandbox: &Arc<Sandbox>, kind: Kind, pid: u32) -> io::Result<Self> {
        let name = format!("kvmlet-{}-{pid}", kind.word);
        let adopted = sandbox.adopt(&name, pid, &kind.limits()).await;
        adopted.map_err(io::Error::other)?;
        Ok(Self {
            sandbox: Arc::clone(sandbox),
            name,
        })
    }

    /// Takes it away, once its helper was waited for.
    pub(crate) async fn remove(self) {
        if let Err(error) = self.sandbox.remove(&self.name).await {
            tracing::debug!(
                name = self.name,
                error = &error as &(dyn std::error::Error + 'static),
                "the cgroup of a helper stays"
            );
        }
    }
}

/// A helper that takes orders for as long as it runs.
#[derive(Debug)]
pub(crate) struct Server {
    /// Dropping it ends the process.
    pub(crate) child: Child,
    pub(crate) pid: u32,
    /// Keeps the bounds of messages (`SOCK_SEQPACKET`); the other end is its standard input.
    pub(crate) orders: OwnedFd,
    pub(crate) scope: Scope,
}

/// Starts one in a scope of its own: its sockets are not bound by the rules of the agent's.
pub(crate) async fn start_server(
    program: &Path,
    arguments: &[&OsStr],
    stdout: Stdio,
    sandbox: &Arc<Sandbox>,
    kind: Kind,
) -> io::Result<Server> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let (orders, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
    let child = Command::new(program)
        .args(arguments)
        .env_clear()
        .stdin(Stdio::from(theirs))
        .stdout(stdout)
        .kill_on_drop(true)
        .spawn()?;
    let pid = child.id().ok_or(io::ErrorKind::NotFound)?;
    let scope = Scope::of(sandbox, kind, pid).await?;
    Ok(Server {
        child,
        pid,
        orders,
        scope,
    })
}
