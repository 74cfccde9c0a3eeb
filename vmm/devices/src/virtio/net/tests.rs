use super::*;
use crate::virtio::testing::{BUFFERS, Driver, RAM_BYTES, mad_descriptors, read, write};
use crate::virtio::transport::{EVENT_IDX, INDIRECT_DESC, VERSION_1};
use proptest::prelude::*;
use std::os::unix::net::UnixDatagram;
use std::sync::Mutex;
use vm_memory::Bytes;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];
const MTU_VALUE: u16 = 1450;

/// A datagram socket: packets are whole, it is non-blocking and has an edge for every packet, like
/// a tap.
struct Socket {
    socket: UnixDatagram,
    offloads: Arc<Mutex<Option<TapOffloads>>>,
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.socket.as_raw_fd()
    }
}

impl PacketPort for Socket {
    fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.socket.recv(buffer) {
            Ok(count) => Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn send<B: BitmapSlice>(&self, parts: &[VolatileSlice<'_, B>]) -> io::Result<()> {
        let mut packet = Vec::new();
        for part in parts {
            let mut bytes = vec![0; part.len()];
            part.read_slice(&mut bytes, 0).unwrap();
            packet.extend_from_slice(&bytes);
        }
        self.socket.send(&packet).map(|_| ())
    }

    fn set_offloads(&self, offloads: TapOffloads) -> Result<(), TapError> {
        *self.offloads.lock().unwrap() = Some(offloads);
        Ok(())
    }
}

struct Card {
    driver: Driver,
    wire: UnixDatagram,
    counters: Arc<NetCounters>,
    offloads: Arc<Mutex<Option<TapOffloads>>>,
}

impl Card {
    fn new(features: u64) -> Self {
        let (ours, wire) = UnixDatagram::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        wire.set_nonblocking(true).unwrap();
        let offloads = Arc::default();
        let socket = Socket {
            socket: ours,
            offloads: Arc::clone(&offloads),
        };
        let device = NetDevice::new(socket, MAC, MTU_VALUE);
        let counters = device.counters();
        let driver = Driver::ready(Box::new(device), 16, VERSION_1 | features);
        Self {
            driver,
            wire,
            counters,
            offloads,
        }
    }

    /// A packet arrives, and the device hears of it.
    fn arrives(&mut self, packet: &[u8]) {
        use crate::pci::function::PciFunction;

        self.wire.send(packet).unwrap();
        self.driver.function.handle_event(1 << 16);
        self.driver.settle();
    }

    fn sent(&self) -> Option<Vec<u8>> {
        let mut packet = vec![0; 0x2_0000];
        let count = self.wire.recv(&mut packet).ok()?;
        packet.truncate(count);
        Some(packet)
    }
}

/// A packet with an empty header and a frame of `bytes` bytes.
fn packet(bytes: usize) -> Vec<u8> {
    let mut packet = vec![0; VNET_HEADER_BYTES];
    packet.extend((0..bytes).map(|i| i.to_le_bytes()[0] | 1));
    packet
}

fn header_with_buffers(count: u16) -> Vec<u8> {
    let mut header = vec![0; 10];
    header.extend_from_slice(&count.to_le_bytes());
    header
}

#[test]
fn the_guest_reads_address_link_and_mtu() {
    use crate::pci::function::PciFunction;

    let mut card = Card::new(0);
    let mut data = [0xff; 12];
    card.driver.function.bar_read(0, 0x2000, &mut data[..8]);
    card.driver.function.bar_read(0, 0x2008, &mut data[8..]);
    assert_eq!(data[..6], MAC);
    assert_eq!(data[6..8], [1, 0]);
    assert_eq!(data[10..], MTU_VALUE.to_le_bytes());
}

#[test]
fn what_the_guest_sends_goes_out_whole() {
    let mut card = Card::new(EVENT_IDX);
    let packet = packet(60);
    card.driver.fill(BUFFERS, &packet);
    let rest = u32::try_from(packet.len()).unwrap() - 12;
    card.driver
        .offer(1, &[read(BUFFERS, 12), read(BUFFERS + 12, rest)]);
    card.driver.kick(1);
    assert_eq!(card.sent(), Some(packet));
    assert_eq!(card.driver.used(1), Some((0, 0)));
    assert_eq!(card.counters.sent(), 1);
}

#[test]
fn malformed_frames_are_dropped_and_given_back() {
    let mut card = Card::new(0);
    let chains = [
        read(BUFFERS, 0),
        read(BUFFERS, 25),
        read(BUFFERS, 0x2_0000),
        read(RAM_BYTES as u64 - 10, 100),
        read(u64::MAX - 50, 100),
        write(BUFFERS, 100),
    ];
    for chain in chains {
        card.driver.offer(1, &[chain]);
    }
    card.driver.kick(1);
    for _ in chains {
        assert!(card.driver.used(1).is_some());
    }
    assert_eq!(card.sent(), None);
    assert_eq!(card.counters.send_dropped(), 6);
    assert!(!card.driver.needs_reset());
}

#[test]
fn a_frame_is_received_with_its_header() {
    let mut card = Card::new(0);
    card.driver
        .offer(0, &[write(BUFFERS, 12), write(BUFFERS + 0x100, 1514)]);
    card.driver.kick(0);
    let packet = packet(100);
    card.arrives(&packet);
    assert_eq!(card.driver.used(0), Some((0, 112)));
    assert_eq!(card.driver.bytes(BUFFERS, 12), header_with_buffers(1));
    assert_eq!(card.driver.bytes(BUFFERS + 0x100, 100), packet[12..]);
    assert_eq!(card.driver.calls(0), 1);
}

#[test]
fn frames_wait_while_the_guest_has_no_buffers() {
    for features in [0, EVENT_IDX, EVENT_IDX | config::MRG_RXBUF] {
        let mut card = Card::new(features);
        for length in [100, 200, 300] {
            card.arrives(&packet(length));
        }
        assert_eq!(card.driver.used(0), None);
        for expected in [112, 212, 312] {
            card.driver.offer(0, &[write(BUFFERS, 2048)]);
            card.driver.kick(0);
            assert_eq!(card.driver.used(0).unwrap().1, expected);
        }
        assert_eq!(card.counters.receive_dropped(), 0);
    }
}

#[test]
fn a_frame_is_spread_over_mergeable_buffers() {
    let mut card = Card::new(config::MRG_RXBUF);
    for buffer in 0..4 {
        card.driver
            .offer(0, &[write(BUFFERS + buffer * 0x1000, 512)]);
    }
    card.driver.kick(0);
    let packet = packet(1200);
    card.arrives(&packet);
    assert_eq!(card.driver.used(0), Some((0, 512)));
    assert_eq!(card.driver.used(0), Some((1, 512)));
    assert_eq!(card.driver.used(0), Some((2, 188)));
    assert_eq!(card.driver.used(0), None);
    assert_eq!(card.driver.bytes(BUFFERS, 12), header_with_buffers(3));
    let mut got = card.driver.bytes(BUFFERS + 12, 500);
    got.extend(card.driver.bytes(BUFFERS + 0x1000, 512));
    got.extend(card.driver.bytes(BUFFERS + 0x2000, 188));
    assert_eq!(got, packet[12..]);
}

#[test]
fn a_frame_that_needs_more_buffers_waits_for_them() {
    // With the event index, the driver kicks only for the chain that the device names.
    let mut card = Card::new(config::MRG_RXBUF | EVENT_IDX);
    card.driver.offer(0, &[write(BUFFERS, 512)]);
    card.driver.kick(0);
    card.arrives(&packet(1000));
    assert_eq!(card.driver.used(0), None);
    let avail_event = card.driver.rings(0) + 0x6000 + 4 + 8 * 16;
    assert_eq!(card.driver.bytes(avail_event, 2), 1u16.to_le_bytes());
    card.driver.offer(0, &[write(BUFFERS + 0x1000, 512)]);
    card.driver.kick(0);
    assert_eq!(card.driver.used(0), Some((0, 512)));
    assert_eq!(card.driver.used(0), Some((1, 500)));
}

#[test]
fn a_frame_longer_than_all_buffers_is_dropped_and_the_next_arrives() {
    let mut card = Card::new(0);
    card.driver.offer(0, &[write(BUFFERS, 512)]);
    card.driver.kick(0);
    card.arrives(&packet(1000));
    card.arrives(&packet(100));
    assert_eq!(card.driver.used(0), Some((0, 112)));
    assert_eq!(card.counters.receive_dropped(), 1);

    let mut card = Card::new(config::MRG_RXBUF);
    for _ in 0..16 {
        card.driver.offer(0, &[write(BUFFERS, 32)]);
    }
    card.driver.kick(0);
    card.arrives(&packet(1000));
    card.arrives(&packet(10));
    assert_eq!(card.driver.used(0), Some((0, 22)));
    assert_eq!(card.counters.receive_dropped(), 1);
}

#[test]
fn buffers_that_are_not_ram_or_not_writable_lose_the_frame_only() {
    let mut card = Card::new(0);
    card.driver.offer(0, &[write(RAM_BYTES as u64, 2048)]);
    card.driver.offer(0, &[read(BUFFERS, 2048)]);
    card.driver.offer(0, &[write(BUFFERS, 2048)]);
    card.driver.kick(0);
    card.arrives(&packet(100));
    assert_eq!(card.driver.used(0), Some((0, 0)));
    assert_eq!(card.counters.receive_dropped(), 1);
    assert!(!card.driver.needs_reset());
}

#[test]
fn many_frames_are_received_in_turns() {
    let mut card = Card::new(EVENT_IDX);
    let (mut wanted, mut got) = (0..300usize, 0);
    while got < 300 {
        while let Some(number) = wanted.next() {
            if card.wire.send(&packet(20 + number)).is_err() {
                wanted = number..300;
                break;
            }
        }
        for _ in 0..8 {
            card.driver.offer(0, &[write(BUFFERS, 2048)]);
        }
        card.driver.kick(0);
        while let Some((_, bytes)) = card.driver.used(0) {
            assert_eq!(bytes, u32::try_from(32 + got).unwrap());
            got += 1;
        }
        if got > 292 {
            break;
        }
    }
    assert_eq!(card.counters.receive_dropped(), 0);
}

#[test]
fn offloads_follow_what_the_driver_took() {
    let card = Card::new(1 << 1 | 1 << 7);
    let expected = TapOffloads {
        checksum: true,
        tso4: true,
        ..TapOffloads::default()
    };
    assert_eq!(*card.offloads.lock().unwrap(), Some(expected));
    let mut card = Card::new(0);
    assert_eq!(*card.offloads.lock().unwrap(), Some(TapOffloads::default()));

    // Segmentation without checksums is refused.
    card.driver.set_status(0);
    card.driver.set_status(3);
    card.driver.negotiate(VERSION_1 | 1 << 7);
    assert_eq!(card.driver.status(), 3);
}

#[test]
fn a_reset_forgets_the_frame_on_its_way() {
    let mut card = Card::new(0);
    card.arrives(&packet(100));
    card.driver.set_status(0);
    card.driver.start(16, VERSION_1);
    card.wire.send(&packet(50)).unwrap();
    card.driver.offer(0, &[write(BUFFERS, 2048)]);
    card.driver.kick(0);
    assert_eq!(card.driver.used(0), Some((0, 62)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever stands in tables and rings while frames arrive, the card comes to rest.
    #[test]
    fn random_descriptors_do_no_harm(
        receive in mad_descriptors(),
        transmit in mad_descriptors(),
        heads in prop::collection::vec(0u16..17, 1..8),
        features in prop_oneof![Just(0), Just(EVENT_IDX), Just(EVENT_IDX | config::MRG_RXBUF)],
        lengths in prop::collection::vec(0usize..3000, 0..6),
    ) {
        let mut card = Card::new(features | INDIRECT_DESC);
        card.driver.go_mad(0, &receive, &heads);
        for length in lengths {
            card.arrives(&packet(length));
        }
        card.driver.go_mad(1, &transmit, &heads);
        card.driver.kick(0);
    }
}
