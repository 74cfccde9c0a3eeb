//! Names of control sockets.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

/// A path, or `@NAME` for a socket without a file.
fn address(name: &str) -> io::Result<SocketAddr> {
    match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    }
}

/// Listens at `name`.
pub fn listen(name: &str) -> io::Result<UnixListener> {
    UnixListener::bind_addr(&address(name)?)
}

/// Connects to `name`.
pub fn connect(name: &str) -> io::Result<UnixStream> {
    UnixStream::connect_addr(&address(name)?)
}
