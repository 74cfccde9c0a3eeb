//! A VMM's sockets by path, without the limit that `sockaddr_un` puts on paths.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::libc;
use tokio::net::UnixStream;

/// The control socket's name within the directory of its incarnation.
const SOCKET_NAME: &str = "control.sock";
/// The name there of the socket that leads to the guest's agent.
const GUEST_AGENT_NAME: &str = "guest-agent.sock";
/// The name there of the socket that leads to programs of the guest that listen on vsock.
const VSOCK_NAME: &str = "vsock.sock";

/// A directory that holds a control socket.
///
/// A socket's address has room for 107 bytes, so it is named through `/proc/self/fd`.
#[derive(Debug)]
pub(crate) struct SocketDir(File);

impl SocketDir {
    /// Opens the directory.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let dir = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(path)?;
        Ok(Self(dir))
    }

    fn address(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.0.as_raw_fd()))
    }

    /// Connects to the VMM that listens here.
    pub(crate) async fn connect(&self) -> io::Result<UnixStream> {
        self.connect_to(SOCKET_NAME).await
    }

    /// Connects to the channel of the agent in the guest. It has room for one peer at a time.
    pub(crate) async fn connect_to_guest_agent(&self) -> io::Result<UnixStream> {
        self.connect_to(GUEST_AGENT_NAME).await
    }

    /// Connects to whoever listens here under a name.
    pub(crate) async fn connect_to(&self, name: &str) -> io::Result<UnixStream> {
        UnixStream::connect(self.address(name)).await
    }
}

/// Makes the listening socket that a VMM will inherit. One that is left over is replaced: the
/// caller has made sure that nobody listens there any more.
pub(crate) fn listen_at(dir: &Path) -> io::Result<UnixListener> {
    listen_as(dir, SOCKET_NAME)
}

/// Makes the socket at which a VMM listens for those who want to talk to its guest's agent. One that
/// is left over was never given to the VMM, or it would have its machine.
pub(crate) fn listen_for_guest_agent(dir: &Path) -> io::Result<UnixListener> {
    listen_as(dir, GUEST_AGENT_NAME)
}

/// Makes the socket at which a VMM listens for programs of the node that want to reach its guest. As
/// with the guest's agent, one that is left over is replaced.
pub(crate) fn listen_for_vsock(dir: &Path) -> io::Result<UnixListener> {
    listen_as(dir, VSOCK_NAME)
}

fn listen_as(dir: &Path, name: &str) -> io::Result<UnixListener> {
    match std::fs::remove_file(dir.join(name)) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = UnixListener::bind(SocketDir::open(dir)?.address(name))?;
    std::fs::set_permissions(dir.join(name), Permissions::from_mode(0o600))?;
    Ok(listener)
}
