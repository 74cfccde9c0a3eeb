//! Control sockets by path, without the limit that `sockaddr_un` puts on paths.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::libc;
use tokio::net::UnixStream;

/// The socket's name within the directory of its incarnation.
const SOCKET_NAME: &str = "control.sock";

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

    fn address(&self) -> PathBuf {
        PathBuf::from(format!(
            "/proc/self/fd/{}/{SOCKET_NAME}",
            self.0.as_raw_fd()
        ))
    }

    /// Connects to the VMM that listens here.
    pub(crate) async fn connect(&self) -> io::Result<UnixStream> {
        UnixStream::connect(self.address()).await
    }
}

/// Makes the listening socket that a VMM will inherit. One that is left over is replaced: the
/// caller has made sure that nobody listens there any more.
pub(crate) fn listen_at(dir: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(dir.join(SOCKET_NAME)) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = UnixListener::bind(SocketDir::open(dir)?.address())?;
    std::fs::set_permissions(dir.join(SOCKET_NAME), Permissions::from_mode(0o600))?;
    Ok(listener)
}
