//! The way to programs of the host that the guest wants to reach: somebody else, the node agent,
//! decides and connects.
//!
//! Packets over a `SOCK_SEQPACKET` socket, little endian:
//!
//! ```text
//! question: u64 number of the connection, u32 port, u32 zero
//! answer:   u64 number of the connection, u32 1 and one descriptor, or 0 and none, u32 zero
//! ```
//!
//! Answers come in any order. A broker that sends anything else is left alone from then on.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use vmm_sys::frame::FrameError;
use vmm_sys::socket::PacketSocket;

const PACKET_BYTES: usize = 16;
const CONNECTED: u32 = 1;

/// The result of a connect that the broker was asked for.
#[derive(Debug)]
pub(super) struct Answer {
    /// Number of the connection.
    pub(super) number: u64,
    /// The host's side of it; `None` when it is refused.
    pub(super) descriptor: Option<OwnedFd>,
}

/// What comes from a broker.
#[derive(Debug)]
pub(super) enum FromBroker {
    Answer(Answer),
    /// Nothing is there now.
    Nothing,
    /// An answer lost its descriptor, because we have too many; nobody knows which one.
    Lost,
    /// It is gone, or does not keep to the protocol.
    Gone,
}

/// The socket to the process that opens connections of the guest on the host.
#[derive(Debug)]
pub(super) struct Broker(PacketSocket);

impl Broker {
    pub(super) fn new(socket: PacketSocket) -> Self {
        Self(socket)
    }

    /// Asks for a connection to `port`.
    ///
    /// # Errors
    /// The broker is gone or does not read.
    pub(super) fn ask(&self, number: u64, port: u32) -> io::Result<()> {
        let mut packet = [0; PACKET_BYTES];
        let fields = number.to_le_bytes().into_iter().chain(port.to_le_bytes());
        for (byte, value) in packet.iter_mut().zip(fields) {
            *byte = value;
        }
        self.0.send(&packet)
    }

    /// The next answer.
    pub(super) fn answer(&self) -> FromBroker {
        // One more byte than is allowed, to see that there are more.
        let mut packet = [0; PACKET_BYTES + 1];
        let (bytes, descriptors) = match self.0.receive(&mut packet) {
            Ok(received) => received,
            Err(FrameError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                return FromBroker::Nothing;
            }
            Err(FrameError::DescriptorsLost) => return FromBroker::Lost,
            Err(_) => return FromBroker::Gone,
        };
        let packet = packet.get(..bytes).unwrap_or_default();
        parse(packet, descriptors).map_or(FromBroker::Gone, FromBroker::Answer)
    }
}

fn parse(packet: &[u8], descriptors: Vec<OwnedFd>) -> Option<Answer> {
    let (number, rest) = packet.split_first_chunk()?;
    let (status, rest) = rest.split_first_chunk()?;
    if *rest != [0; 4] {
        return None;
    }
    let mut descriptors = descriptors.into_iter();
    let descriptor = match u32::from_le_bytes(*status) {
        CONNECTED => Some(descriptors.next()?),
        0 => None,
        _ => return None,
    };
    let number = u64::from_le_bytes(*number);
    (descriptors.next().is_none()).then_some(Answer { number, descriptor })
}

impl AsRawFd for Broker {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn files(count: usize) -> Vec<OwnedFd> {
        (0..count)
            .map(|_| tempfile::tempfile().unwrap().into())
            .collect()
    }

    fn packet(number: u64, status: u32, zero: u32) -> Vec<u8> {
        let parts = [status.to_le_bytes(), zero.to_le_bytes()];
        let mut packet = number.to_le_bytes().to_vec();
        packet.extend(parts.as_flattened());
        packet
    }

    #[test]
    fn an_answer_comes_with_as_many_descriptors_as_its_status_says() {
        let yes = parse(&packet(7, 1, 0), files(1)).unwrap();
        assert_eq!((yes.number, yes.descriptor.is_some()), (7, true));
        let no = parse(&packet(u64::MAX, 0, 0), files(0)).unwrap();
        assert_eq!((no.number, no.descriptor.is_some()), (u64::MAX, false));
        for (packet, count) in [
            (packet(7, 1, 0), 0),
            (packet(7, 1, 0), 2),
            (packet(7, 0, 0), 1),
            (packet(7, 2, 0), 1),
            (packet(7, 1, 1), 1),
            (packet(7, 1, 0)[..15].to_vec(), 1),
            ([packet(7, 1, 0), vec![0]].concat(), 1),
            (Vec::new(), 0),
        ] {
            assert!(parse(&packet, files(count)).is_none(), "{packet:?} {count}");
        }
    }

    proptest! {
        #[test]
        fn any_packet_is_an_answer_or_none(packet in prop::collection::vec(any::<u8>(), 0..18)) {
            parse(&packet, Vec::new());
        }
    }
}
