mod commands;
mod frames;
mod limits;
mod moves;
mod offloads;
mod pace;
mod pairs;
mod status;

use super::*;
use crate::pci::function::PciFunction;
use crate::virtio::testing::{BUFFERS, Driver, read, write};
use crate::virtio::transport::VERSION_1;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::sync::Mutex;
use vm_memory::bitmap::BitmapSlice;
use vm_memory::{Bytes, VolatileSlice};
use vmm_sys::tap::{TapError, VNET_HEADER_BYTES};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];
const MTU_VALUE: u16 = 1450;

/// Settings that a device made at its backends.
#[derive(Debug, Default)]
struct RecordedSettings {
    offloads: Option<TapOffloads>,
    /// Changes of offloads and queues, each of which takes a lock of all the host's interfaces.
    changes: usize,
    attached: Vec<bool>,
    /// The host refuses changes.
    refuses: bool,
    /// The host takes no frames now.
    is_busy: bool,
    /// The tap fails whatever it is asked for.
    is_broken: bool,
}

/// A datagram socket: packets are whole, it is non-blocking and has an edge for every packet, like
/// a tap.
struct Socket {
    socket: UnixDatagram,
    index: usize,
    knows_uso: bool,
    settings: Arc<Mutex<RecordedSettings>>,
}

fn refused(call: &'static str) -> TapError {
    TapError::Call {
        call,
        source: io::ErrorKind::InvalidInput.into(),
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.socket.as_raw_fd()
    }
}

impl PacketBackend for Socket {
    fn receive<B: BitmapSlice>(
        &self,
        parts: &[VolatileSlice<'_, B>],
        rest: &mut [u8],
    ) -> io::Result<Option<usize>> {
        if self.settings.lock().unwrap().is_broken {
            return Err(io::Error::other("no such device"));
        }
        match vmm_sys::guest_io::read_packet(&self.socket, parts, rest) {
            Ok(count) => Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn send<B: BitmapSlice>(&self, parts: &[VolatileSlice<'_, B>]) -> io::Result<()> {
        if self.settings.lock().unwrap().is_busy {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if self.settings.lock().unwrap().is_broken {
            return Err(io::Error::other("no such device"));
        }
        let mut packet = Vec::new();
        for part in parts {
            let mut bytes = vec![0; part.len()];
            part.read_slice(&mut bytes, 0).unwrap();
            packet.extend_from_slice(&bytes);
        }
        self.socket.send(&packet).map(|_| ())
    }

    fn set_offloads(&self, offloads: TapOffloads) -> Result<(), TapError> {
        let mut settings = self.settings.lock().unwrap();
        if settings.refuses || (offloads.uso && !self.knows_uso) {
            return Err(refused("TUNSETOFFLOAD"));
        }
        settings.offloads = Some(offloads);
        settings.changes += 1;
        Ok(())
    }

    fn has_queues(&self) -> bool {
        true
    }

    fn set_attached(&self, attached: bool) -> Result<(), TapError> {
        let mut settings = self.settings.lock().unwrap();
        if settings.refuses {
            return Err(refused("TUNSETQUEUE"));
        }
        settings.changes += usize::from(settings.attached[self.index] != attached);
        settings.attached[self.index] = attached;
        Ok(())
    }
}

struct Nic {
    driver: Driver,
    /// The other ends, one for each pair of queues.
    wires: Vec<UnixDatagram>,
    counters: Arc<NetCounters>,
    control: Arc<NetControl>,
    settings: Arc<Mutex<RecordedSettings>>,
}

fn config() -> NetConfig {
    NetConfig {
        mac: MAC,
        mtu: MTU_VALUE,
        ..NetConfig::default()
    }
}

/// Ports and their other ends.
fn backends(
    pairs: usize,
    settings: &Arc<Mutex<RecordedSettings>>,
) -> (Vec<Socket>, Vec<UnixDatagram>) {
    settings.lock().unwrap().attached = vec![true; pairs];
    let pair = |index| {
        let (socket, wire) = UnixDatagram::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        wire.set_nonblocking(true).unwrap();
        let settings = Arc::clone(settings);
        let backend = Socket {
            socket,
            index,
            knows_uso: true,
            settings,
        };
        (backend, wire)
    };
    (0..pairs).map(pair).unzip()
}

impl Nic {
    /// A NIC with one pair of queues.
    fn new(features: u64) -> Self {
        Self::with(1, &config(), features)
    }

    fn with(pairs: usize, config: &NetConfig, features: u64) -> Self {
        let settings = Arc::default();
        let (backends, wires) = backends(pairs, &settings);
        let device = NetDevice::new(backends, config).unwrap();
        let (counters, control) = (device.counters(), device.control());
        let driver = Driver::ready(Box::new(device), 16, VERSION_1 | features);
        Self {
            driver,
            wires,
            counters,
            control,
            settings,
        }
    }

    /// The same guest on a NIC that was made of this one's state.
    fn moved(mut self) -> Self {
        self.driver.function.quiesce().unwrap();
        let settings = Arc::default();
        let (backends, wires) = backends(self.wires.len(), &settings);
        let mut handles = None;
        let mut driver = self.driver.moved_by(|payloads| {
            let device = NetDevice::restored(backends, &config(), payloads).unwrap();
            handles = Some((device.counters(), device.control()));
            Box::new(device)
        });
        let (counters, control) = handles.unwrap();
        driver.function.resume();
        driver.settle();
        Self {
            driver,
            wires,
            counters,
            control,
            settings,
        }
    }

    /// A packet arrives at the first backend, and the device is notified.
    fn arrives(&mut self, packet: &[u8]) {
        self.arrives_at(0, packet);
    }

    fn arrives_at(&mut self, pair: usize, packet: &[u8]) {
        self.wires[pair].send(packet).unwrap();
        self.driver
            .function
            .handle_event((1 << 16) + BACKENDS + pair as u64);
        self.driver.settle();
    }

    fn sent(&self) -> Option<Vec<u8>> {
        self.sent_by(0)
    }

    fn sent_by(&self, pair: usize) -> Option<Vec<u8>> {
        let mut packet = vec![0; 0x2_0000];
        let count = self.wires[pair].recv(&mut packet).ok()?;
        packet.truncate(count);
        Some(packet)
    }

    /// Has the device serve requests and timers, as far as they are due.
    fn settle_own(&mut self) {
        self.driver.settle_own(0);
    }

    /// The first bytes of the configuration: address, status, pairs, MTU.
    fn configuration(&mut self) -> Vec<u8> {
        let mut data = [0xff; 12];
        self.driver.function.bar_read(0, 0x2000, &mut data[..8]);
        self.driver.function.bar_read(0, 0x2008, &mut data[8..]);
        data.to_vec()
    }

    /// Sends a command of the control queue, which is queue `queue`; returns its answer.
    fn command(&mut self, queue: usize, command: &[u8]) -> u8 {
        let (header, data) = command.split_at(2);
        self.driver.fill(BUFFERS + 0x8_0000, header);
        self.driver.fill(BUFFERS + 0x8_1000, data);
        self.driver.fill(BUFFERS + 0x8_0100, &[0xee]);
        let bytes = u32::try_from(data.len()).unwrap();
        let head = self.driver.offer(
            queue,
            &[
                read(BUFFERS + 0x8_0000, 2),
                read(BUFFERS + 0x8_1000, bytes),
                write(BUFFERS + 0x8_0100, 1),
            ],
        );
        self.driver.kick(queue);
        assert_eq!(self.driver.used(queue), Some((head.into(), 1)));
        self.driver.bytes(BUFFERS + 0x8_0100, 1)[0]
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
