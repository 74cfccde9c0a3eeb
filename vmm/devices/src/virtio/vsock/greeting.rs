//! What a host program says first: `CONNECT <port>\n`, as it does to Firecracker and Cloud
//! Hypervisor. It is answered by `OK <host port>\n` once the guest has accepted, or by the end of
//! the connection.

use vmm_sys::socket::StreamSocket;

/// Longest line with its end: the longest that makes sense has 19 bytes.
const MAX_LINE_BYTES: usize = 32;

/// Every port is reserved for "any" (`VMADDR_PORT_ANY`).
const ANY_PORT: u32 = u32::MAX;

/// A host program that has not said yet where it wants to go.
pub(super) struct Greeting {
    pub(super) socket: StreamSocket,
    line: Vec<u8>,
}

/// Result of reading a greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GreetingOutcome {
    /// The line is not complete.
    Nothing,
    /// It wants to reach this port of the guest.
    Port(u32),
    /// It said something else, or left.
    Nonsense,
}

impl Greeting {
    pub(super) fn new(socket: StreamSocket) -> Self {
        Self {
            socket,
            line: Vec::new(),
        }
    }

    /// Reads on, and not a byte beyond the line: what follows is for the guest.
    pub(super) fn read(&mut self) -> GreetingOutcome {
        let mut ahead = [0; MAX_LINE_BYTES];
        loop {
            let seen = match self.socket.peek(&mut ahead) {
                Ok(None) => return GreetingOutcome::Nothing,
                Ok(Some(0)) | Err(_) => return GreetingOutcome::Nonsense,
                Ok(Some(count)) => ahead.get(..count).unwrap_or_default(),
            };
            let end = seen.iter().position(|byte| *byte == b'\n');
            let count = end.map_or(seen.len(), |end| end + 1);
            if self.line.len() + count > MAX_LINE_BYTES {
                return GreetingOutcome::Nonsense;
            }
            let mut taken = [0; MAX_LINE_BYTES];
            let room = taken.get_mut(..count).unwrap_or_default();
            let Ok(Some(count)) = self.socket.receive(room) else {
                return GreetingOutcome::Nonsense;
            };
            self.line
                .extend_from_slice(taken.get(..count).unwrap_or_default());
            if end.is_some() {
                return port(&self.line).map_or(GreetingOutcome::Nonsense, GreetingOutcome::Port);
            }
        }
    }
}

/// The port in a whole line.
fn port(line: &[u8]) -> Option<u32> {
    let digits = line.strip_prefix(b"CONNECT ")?.strip_suffix(b"\n")?;
    // `parse` would take a sign, too.
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let port = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (port != ANY_PORT).then_some(port)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use proptest::prelude::*;

    use super::*;

    fn greeting() -> (Greeting, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let socket = StreamSocket::adopt(ours.into()).unwrap();
        (Greeting::new(socket), theirs)
    }

    #[test]
    fn a_line_may_come_in_pieces_and_what_follows_stays_in_the_socket() {
        let (mut greeting, mut peer) = greeting();
        assert_eq!(greeting.read(), GreetingOutcome::Nothing);
        for byte in b"CONNECT 52" {
            peer.write_all(&[*byte]).unwrap();
            assert_eq!(greeting.read(), GreetingOutcome::Nothing);
        }
        peer.write_all(b"\nGET /").unwrap();
        assert_eq!(greeting.read(), GreetingOutcome::Port(52));
        let mut rest = [0; 8];
        assert_eq!(greeting.socket.receive(&mut rest).unwrap(), Some(5));
    }

    #[test]
    fn lines_that_name_no_port_are_nonsense() {
        for line in [
            "CONNECT \n",
            "CONNECT +5\n",
            "CONNECT -5\n",
            "CONNECT 5 \n",
            "CONNECT 4294967295\n",
            "CONNECT 4294967296\n",
            "connect 5\n",
            "GET / HTTP/1.1\n",
            "\n",
            "CONNECT 0000000000000000000000005\n",
            "CONNECT 00000000000000000000000000000",
        ] {
            let (mut greeting, mut peer) = greeting();
            peer.write_all(line.as_bytes()).unwrap();
            assert_eq!(greeting.read(), GreetingOutcome::Nonsense, "{line:?}");
        }
        let (mut greeting, mut peer) = greeting();
        peer.write_all(b"CONNECT 4294967294\n").unwrap();
        assert_eq!(greeting.read(), GreetingOutcome::Port(u32::MAX - 1));
    }

    #[test]
    fn a_peer_that_leaves_has_said_nonsense() {
        let (mut greeting, mut peer) = greeting();
        peer.write_all(b"CONNECT 5").unwrap();
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(greeting.read(), GreetingOutcome::Nonsense);
        drop(greeting);
        assert_eq!(peer.read(&mut [0]).unwrap(), 0);
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..12), 1..8)) {
            let (mut greeting, mut peer) = greeting();
            let mut all = Vec::new();
            for piece in pieces {
                peer.write_all(&piece).unwrap();
                all.extend(piece);
                let is_line = all.contains(&b'\n') || all.len() > MAX_LINE_BYTES;
                let said = greeting.read();
                prop_assert_eq!(said == GreetingOutcome::Nothing, !is_line);
                if is_line {
                    return Ok(());
                }
            }
        }
    }
}
