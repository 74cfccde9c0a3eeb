//! Who is at the other end of a Unix socket.

use std::io;
use std::os::fd::AsFd;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

/// Credentials of a connected peer at the time it connected (`SO_PEERCRED`), seen from our
/// namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process id; 0 when the peer is in a pid namespace that we do not see.
    pub pid: i32,
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
}

impl Peer {
    /// Asks the kernel for the peer of a connected Unix socket.
    ///
    /// # Errors
    /// The descriptor is no connected Unix socket.
    pub fn of(socket: &impl AsFd) -> io::Result<Self> {
        let credentials = getsockopt(socket, PeerCredentials)?;
        Ok(Self {
            pid: credentials.pid(),
            uid: credentials.uid(),
            gid: credentials.gid(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_socket_pair_has_ourselves_as_its_peer() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let peer = Peer::of(&ours).unwrap();
        assert_eq!(u32::try_from(peer.pid).unwrap(), std::process::id());
        assert_eq!(peer.uid, nix::unistd::geteuid().as_raw());
    }

    #[test]
    fn a_file_has_no_peer() {
        assert!(Peer::of(&std::fs::File::open("/dev/null").unwrap()).is_err());
    }
}
