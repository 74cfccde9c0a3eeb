//! Sockets between programs of a guest and of the node.
//!
//! In the directory of each VMM, which is the agent's alone:
//!
//! | socket | who listens | for |
//! | --- | --- | --- |
//! | `vsock.sock` | the VMM | programs of the node that want to reach the guest (docs/devices/virtio-vsock.md) |
//! | `vsock.sock_PORT` | a program of the node | the guest's connections to this port of the host |
//!
//! The VMM opens nothing: it asks the broker, which connects to the program and hands the connection
//! over. While no agent runs there is no broker, and the guest is refused.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, recvmsg, sendmsg,
    socketpair,
};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::control::SocketDir;

/// Prefix of programs' sockets; the port follows.
const PROGRAM_PREFIX: &str = "vsock.sock_";

/// Time limit for a program with a full queue. The VMM waits 5 s.
const PATIENCE: Duration = Duration::from_secs(2);

/// Bytes of a question and of an answer.
const PACKET_BYTES: usize = 16;

/// The broker of one VMI. Dropping it ends it.
#[derive(Debug, Default)]
pub(crate) struct Broker {
    /// For which incarnation, and by what.
    task: Mutex<Option<(u64, AbortHandle)>>,
}

impl Broker {
    /// Serves the VMM of an incarnation, whose directory is `dir`, from now on. The VMM gets the
    /// returned end.
    pub(crate) fn start(&self, incarnation: u64, dir: &Path) -> io::Result<OwnedFd> {
        let (ours, vmms) = socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
        )?;
        let ours = polled(ours)?;
        let dir = dir.to_owned();
        let task = tokio::spawn(async move {
            if let Err(error) = serve(&ours, &dir).await {
                tracing::warn!(%error, "a guest's connections to the node are refused from now on");
            }
        });
        let former = self.lock().replace((incarnation, task.abort_handle()));
        if let Some((_, former)) = former {
            former.abort();
        }
        Ok(vmms)
    }

    /// Whether the VMM of an incarnation is served.
    pub(crate) fn serves(&self, incarnation: u64) -> bool {
        let task = self.lock();
        task.as_ref()
            .is_some_and(|(served, task)| *served == incarnation && !task.is_finished())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<(u64, AbortHandle)>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some((_, task)) = self.lock().take() {
            task.abort();
        }
    }
}

/// The runtime waits for a socket of packets as it does for one of a stream.
fn polled(socket: OwnedFd) -> io::Result<UnixStream> {
    UnixStream::from_std(socket.into())
}

/// Answers questions, one after the other, until the VMM has gone.
async fn serve(socket: &UnixStream, dir: &Path) -> io::Result<()> {
    loop {
        let question = socket
            .async_io(Interest::READABLE, || receive(socket))
            .await?;
        let Some((number, port)) = question else {
            return Ok(());
        };
        let program = connect(dir, port).await;
        if let Err(error) = &program {
            tracing::debug!(port, %error, "no program takes the guest's connection");
        }
        let program = program.ok();
        socket
            .async_io(Interest::WRITABLE, || {
                answer(socket, number, program.as_ref())
            })
            .await?;
    }
}

/// The next question: number and port; nothing when the VMM has gone.
fn receive(socket: &UnixStream) -> io::Result<Option<(u64, u32)>> {
    let mut packet = [0; PACKET_BYTES + 1];
    let mut space = [IoSliceMut::new(&mut packet)];
    let length =
        recvmsg::<UnixAddr>(socket.as_raw_fd(), &mut space, None, MsgFlags::empty())?.bytes;
    match (length, packet.first_chunk::<PACKET_BYTES>()) {
        (0, _) => Ok(None),
        (PACKET_BYTES, Some([a, b, c, d, e, f, g, h, i, j, k, l, ..])) => Ok(Some((
            u64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h]),
            u32::from_le_bytes([*i, *j, *k, *l]),
        ))),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("the VMM asked in {length} bytes"),
        )),
    }
}

fn answer(socket: &UnixStream, number: u64, program: Option<&UnixStream>) -> io::Result<()> {
    let mut packet = Vec::with_capacity(PACKET_BYTES);
    packet.extend(number.to_le_bytes());
    packet.extend(u32::from(program.is_some()).to_le_bytes());
    packet.extend(0u32.to_le_bytes());
    let descriptors: Vec<_> = program.into_iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let rights = if descriptors.is_empty() {
        &[]
    } else {
        &rights[..]
    };
    let flags = MsgFlags::MSG_NOSIGNAL;
    sendmsg::<UnixAddr>(
        socket.as_raw_fd(),
        &[IoSlice::new(&packet)],
        rights,
        flags,
        None,
    )?;
    Ok(())
}

/// Connects to the program that listens for a port.
async fn connect(dir: &Path, port: u32) -> io::Result<UnixStream> {
    let dir = SocketDir::open(dir)?;
    let name = format!("{PROGRAM_PREFIX}{port}");
    timeout(PATIENCE, dir.connect_to(&name))
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

#[cfg(test)]
mod tests;
