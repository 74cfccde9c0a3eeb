//! The network card's test: frames of all lengths to a peer that sends each one back.

use super::queue::{Queue, Segment};
use super::{Device, DeviceError, queue_vector};
use crate::clock::Clock;
use crate::memory::DmaBuffer;
use crate::pci::Function;
use testguest_lib::command_line::Settings;
use testguest_lib::echo_frame::{self, MAX_FRAME_BYTES};

const FEATURE_MAC: u64 = 1 << 5;
const MAC: usize = 0;
/// With VIRTIO_F_VERSION_1 the header always has `num_buffers`.
const HEADER_BYTES: usize = 12;
const RECEIVE_QUEUE: u16 = 0;
const TRANSMIT_QUEUE: u16 = 1;

const RECEIVE_BUFFERS: u16 = 16;
const BUFFER_BYTES_U32: u32 = 2048;
const BUFFER_BYTES: usize = BUFFER_BYTES_U32 as usize;
/// How long one frame's echo may take before the frame is sent again.
const ECHO_TIMEOUT_MS: u64 = 500;
const TRANSMIT_TIMEOUT_MS: u64 = 5_000;
/// A network may lose a frame, and the peer may be late in the beginning.
const ATTEMPTS: u32 = 10;

/// What the test found out about a device that passed.
pub struct NetSummary {
    /// The card's MAC address.
    pub mac: [u8; 6],
    /// Frames sent and returned intact.
    pub frames: u64,
    /// Frames that had to be sent again.
    pub retries: u64,
    /// Interrupts taken by both queues.
    pub irqs: u32,
}

struct Card<'a> {
    receive: Queue<'a>,
    transmit: Queue<'a>,
    receive_memory: DmaBuffer,
    transmit_memory: DmaBuffer,
    clock: &'a Clock,
}

/// Tests a network card against the echo peer of `settings`.
pub fn test(
    function: &Function,
    clock: &Clock,
    settings: &Settings,
) -> Result<NetSummary, DeviceError> {
    let mut device = Device::open(function, clock, settings.mode, FEATURE_MAC)?;
    if device.features & FEATURE_MAC == 0 {
        return Err(DeviceError::Missing("VIRTIO_NET_F_MAC"));
    }
    let receive = device.queue(RECEIVE_QUEUE, queue_vector(0))?;
    let transmit = device.queue(TRANSMIT_QUEUE, queue_vector(1))?;
    device.start();
    let irqs_before = receive.irqs().wrapping_add(transmit.irqs());
    let mut mac = [0; 6];
    for (offset, byte) in mac.iter_mut().enumerate() {
        *byte = device.configuration.read8(MAC + offset);
    }

    let mut card = Card::new(receive, transmit, clock)?;
    let mut retries = 0;
    for number in 0..settings.net_frames {
        let sequence =
            u32::try_from(number).map_err(|_| DeviceError::Refused("that many frames"))?;
        retries += card.exchange(settings.peer, mac, sequence)?;
    }
    let irqs = card
        .receive
        .irqs()
        .wrapping_add(card.transmit.irqs())
        .wrapping_sub(irqs_before);
    Ok(NetSummary {
        mac,
        frames: settings.net_frames,
        retries,
        irqs,
    })
}

impl<'a> Card<'a> {
    fn new(receive: Queue<'a>, transmit: Queue<'a>, clock: &'a Clock) -> Result<Self, DeviceError> {
        let buffers = RECEIVE_BUFFERS.min(receive.size());
        let memory = |bytes| DmaBuffer::new(bytes).ok_or(DeviceError::Missing("memory for frames"));
        let mut card = Self {
            receive_memory: memory(usize::from(buffers) * BUFFER_BYTES)?,
            transmit_memory: memory(BUFFER_BYTES)?,
            receive,
            transmit,
            clock,
        };
        for index in 0..buffers {
            card.offer_buffer(index);
        }
        card.receive.kick();
        Ok(card)
    }

    fn offer_buffer(&mut self, index: u16) {
        let segment = Segment {
            address: self.receive_memory.address() + u64::from(index) * BUFFER_BYTES as u64,
            bytes: BUFFER_BYTES_U32,
            device_writes: true,
        };
        self.receive.submit(index, &[segment]);
    }

    /// Sends one frame and waits for its echo, several times if need be; returns how often again.
    fn exchange(&mut self, peer: [u8; 6], mac: [u8; 6], sequence: u32) -> Result<u64, DeviceError> {
        let mut frame = [0; MAX_FRAME_BYTES];
        let length = echo_frame::write(&mut frame, peer, mac, sequence);
        for attempt in 0..ATTEMPTS {
            self.send(&frame[..length])?;
            match self.receive_echo(&frame[..length], peer, sequence) {
                Err(DeviceError::Timeout(_)) => {}
                Err(error) => return Err(error),
                Ok(()) => return Ok(u64::from(attempt)),
            }
        }
        Err(DeviceError::Timeout("echo of a frame"))
    }

    /// Header and frame in one segment or in two, by turns.
    fn send(&mut self, frame: &[u8]) -> Result<(), DeviceError> {
        self.transmit_memory.write(0, &[0; HEADER_BYTES]);
        self.transmit_memory.write(HEADER_BYTES, frame);
        let address = self.transmit_memory.address();
        let bytes = |length: usize| u32::try_from(length).unwrap_or(0);
        let part = |address, bytes| Segment {
            address,
            bytes,
            device_writes: false,
        };
        if frame.len().is_multiple_of(2) {
            self.transmit
                .submit(0, &[part(address, bytes(HEADER_BYTES + frame.len()))]);
        } else {
            let header = part(address, bytes(HEADER_BYTES));
            let body = part(address + HEADER_BYTES as u64, bytes(frame.len()));
            self.transmit.submit(0, &[header, body]);
        }
        self.transmit.kick();
        let deadline = self.clock.after_ms(TRANSMIT_TIMEOUT_MS);
        self.transmit.wait_used(deadline, "transmission")?;
        self.transmit.confirm_irq(deadline, "transmission")
    }

    fn receive_echo(
        &mut self,
        sent: &[u8],
        peer: [u8; 6],
        sequence: u32,
    ) -> Result<(), DeviceError> {
        let deadline = self.clock.after_ms(ECHO_TIMEOUT_MS);
        loop {
            let used = self.receive.wait_used(deadline, "echo")?;
            let mut buffer = [0; BUFFER_BYTES];
            self.receive_memory
                .read(usize::from(used.head) * BUFFER_BYTES, &mut buffer);
            self.offer_buffer(used.head);
            self.receive.kick();
            let end = usize::try_from(used.bytes).unwrap_or(usize::MAX);
            let frame = buffer.get(HEADER_BYTES..end).ok_or(DeviceError::Mismatch {
                what: "bytes received",
                expected: BUFFER_BYTES as u64,
                got: u64::from(used.bytes),
            })?;
            // Other traffic, and the late echo of an earlier attempt.
            if !echo_frame::is_echo(frame, peer) || echo_frame::sequence(frame) != Some(sequence) {
                continue;
            }
            return match echo_frame::first_difference(sent, frame) {
                None => Ok(()),
                Some(offset) => Err(DeviceError::Mismatch {
                    what: "first wrong byte of an echo",
                    expected: sent.len() as u64,
                    got: offset as u64,
                }),
            };
        }
    }
}
