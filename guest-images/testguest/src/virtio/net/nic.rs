//! A NIC in use: one or two pairs of queues, perhaps a control queue, and the echo peer.

use testguest_lib::command_line::Settings;
use testguest_lib::echo_frame::{self, MAX_FRAME_BYTES};

use super::super::queue::{Queue, Segment};
use super::super::{Device, DeviceError, queue_vector};
use super::lane::Lane;
use super::packet::{
    FEATURE_CTRL_VQ, FEATURE_MAC, FEATURE_MQ, FrameBuffer, HEADER_BYTES, MAX_PACKET_BYTES,
    TRANSMIT_TIMEOUT_MS,
};
use crate::clock::Clock;
use crate::memory::DmaBuffer;
use crate::pci::Function;

/// Fields of the configuration.
const MAC: usize = 0;
const STATUS: usize = 6;
const MAX_PAIRS: usize = 8;

/// How long one frame's echo may take before the frame is sent again.
const ECHO_TIMEOUT_MS: u64 = 500;
/// A network may lose a frame, and the peer may be late in the beginning.
const ATTEMPTS: u32 = 10;

/// Longest data of a command.
const COMMAND_BYTES: usize = 64;

/// What a NIC has exchanged.
#[derive(Clone, Copy, Default)]
pub struct Totals {
    /// Frames sent and returned intact.
    pub frames: u64,
    /// Frames that had to be sent again.
    pub retries: u64,
    /// Frames that came spread over several buffers.
    pub merged: u64,
}

/// What a test wants of a NIC.
pub struct Wanted {
    /// Features, all of which it must have.
    pub features: u64,
    /// Size of receive buffers.
    pub buffer_bytes: u16,
    /// Pairs of queues, 1 or 2.
    pub pairs: u8,
}

/// A NIC in use. The device is dropped, and so reset, with it.
pub struct Nic<'a> {
    device: Device<'a>,
    lanes: [Option<Lane<'a>>; 2],
    control: Option<(Queue<'a>, DmaBuffer)>,
    clock: &'a Clock,
    irqs_before: u32,
    /// The echo peer.
    peer: [u8; 6],
    /// Address of the NIC.
    pub mac: [u8; 6],
    /// What it has exchanged.
    pub totals: Totals,
}

impl<'a> Nic<'a> {
    /// Resets a NIC and makes it ready.
    pub fn open(
        function: &Function,
        clock: &'a Clock,
        settings: &Settings,
        wanted: &Wanted,
    ) -> Result<Self, DeviceError> {
        let features = wanted.features | FEATURE_MAC;
        let mut device = Device::open(function, clock, settings.mode, features)?;
        if device.features & features != features {
            return Err(DeviceError::Missing("a feature of this test"));
        }
        let mut lanes = [None, None];
        for (index, lane) in (0..wanted.pairs).zip(&mut lanes) {
            *lane = Some(Lane::new(&mut device, clock, index, wanted.buffer_bytes)?);
        }
        let control = if features & FEATURE_CTRL_VQ == 0 {
            None
        } else {
            let pairs = if features & FEATURE_MQ == 0 {
                1
            } else {
                device.configuration.read16(MAX_PAIRS)
            };
            let memory = DmaBuffer::new(COMMAND_BYTES + 4);
            let memory = memory.ok_or(DeviceError::Missing("memory for commands"))?;
            Some((
                device.queue(2 * pairs, queue_vector(wanted.pairs * 2))?,
                memory,
            ))
        };
        device.start();
        let mut nic = Self {
            mac: [0; 6],
            device,
            lanes,
            control,
            clock,
            irqs_before: 0,
            peer: settings.peer,
            totals: Totals::default(),
        };
        nic.irqs_before = nic.all_irqs();
        nic.mac = nic.configured_mac();
        for lane in nic.lanes.iter_mut().flatten() {
            lane.offer_all();
        }
        Ok(nic)
    }

    fn all_irqs(&self) -> u32 {
        let lanes = self.lanes.iter().flatten();
        lanes.fold(0, |sum, lane| sum.wrapping_add(lane.irqs()))
    }

    /// Interrupts of frames since it was opened.
    pub fn irqs(&self) -> u32 {
        self.all_irqs().wrapping_sub(self.irqs_before)
    }

    /// The address in the configuration.
    pub fn configured_mac(&self) -> [u8; 6] {
        let mut mac = [0; 6];
        for (offset, byte) in mac.iter_mut().enumerate() {
            *byte = self.device.configuration.read8(MAC + offset);
        }
        mac
    }

    /// Link (1) and announcement (2).
    pub fn status(&self) -> u16 {
        self.device.configuration.read16(STATUS)
    }

    /// How many pairs the NIC has.
    pub fn max_pairs(&self) -> u16 {
        self.device.configuration.read16(MAX_PAIRS)
    }

    /// A pair of queues.
    pub fn lane(&mut self, index: usize) -> Result<&mut Lane<'a>, DeviceError> {
        let lane = self.lanes.get_mut(index).and_then(Option::as_mut);
        lane.ok_or(DeviceError::Missing("a pair of queues"))
    }

    /// Sends a command; whether the device says that it is done.
    pub fn command(&mut self, class: u8, command: u8, data: &[u8]) -> Result<bool, DeviceError> {
        let (queue, memory) = self
            .control
            .as_mut()
            .ok_or(DeviceError::Missing("control queue"))?;
        memory.write(0, &[class, command, 0xee]);
        memory.write(4, data);
        let part = |offset: u64, bytes: usize, device_writes| Segment {
            address: memory.address() + offset,
            bytes: u32::try_from(bytes).unwrap_or(0),
            device_writes,
        };
        let chain = [
            part(0, 2, false),
            part(4, data.len(), false),
            part(2, 1, true),
        ];
        queue.submit(0, &chain);
        queue.kick();
        let deadline = self.clock.after_ms(TRANSMIT_TIMEOUT_MS);
        queue.wait_used(deadline, "command")?;
        let mut answer = [0];
        memory.read(2, &mut answer);
        match answer {
            [0] => Ok(true),
            [1] => Ok(false),
            [other] => Err(DeviceError::Mismatch {
                what: "answer to a command",
                expected: 0,
                got: other.into(),
            }),
        }
    }

    /// Frame number `sequence` from address `source`, into `frame`; returns its length.
    pub fn write_frame(
        &self,
        frame: &mut [u8; MAX_FRAME_BYTES],
        source: [u8; 6],
        sequence: u32,
    ) -> usize {
        echo_frame::write(frame, self.peer, source, sequence)
    }

    /// Exchanges frame number `sequence` by a pair of queues, without a header.
    pub fn exchange(&mut self, lane: usize, sequence: u32) -> Result<(), DeviceError> {
        let mut frame = [0; MAX_FRAME_BYTES];
        let length = self.write_frame(&mut frame, self.mac, sequence);
        let mut packet = [0; MAX_PACKET_BYTES];
        let echo = self.echo_of(lane, [0; HEADER_BYTES], &frame[..length], &mut packet)?;
        match echo_frame::first_difference(&frame[..length], &packet[HEADER_BYTES..echo]) {
            None => Ok(()),
            Some(offset) => Err(DeviceError::Mismatch {
                what: "first wrong byte of an echo",
                expected: length as u64,
                got: offset as u64,
            }),
        }
    }

    /// Sends a frame and waits for its echo, several times if need be; returns the length of the
    /// echo, header and all.
    pub fn echo_of(
        &mut self,
        lane: usize,
        header: [u8; HEADER_BYTES],
        frame: &[u8],
        packet: &mut FrameBuffer,
    ) -> Result<usize, DeviceError> {
        let sequence = echo_frame::sequence(frame);
        for attempt in 0..ATTEMPTS {
            self.lane(lane)?.send(header, frame)?;
            let deadline = self.clock.after_ms(ECHO_TIMEOUT_MS);
            // Other traffic, and the late echo of an earlier attempt, are passed over.
            while let Some(length) = self.next_echo(deadline, packet)? {
                if echo_frame::sequence(&packet[HEADER_BYTES..length]) == sequence {
                    self.totals.frames += 1;
                    self.totals.retries += u64::from(attempt);
                    return Ok(length);
                }
            }
        }
        Err(DeviceError::Timeout("echo of a frame"))
    }

    /// The next echo, whichever pair it comes by; none before `deadline`.
    pub fn next_echo(
        &mut self,
        deadline: crate::clock::Moment,
        packet: &mut FrameBuffer,
    ) -> Result<Option<usize>, DeviceError> {
        loop {
            for lane in self.lanes.iter_mut().flatten() {
                let Some((length, buffers)) = lane.poll(packet)? else {
                    continue;
                };
                let frame = packet.get(HEADER_BYTES..length).unwrap_or_default();
                if echo_frame::is_echo(frame, self.peer) {
                    self.totals.merged += u64::from(buffers > 1);
                    return Ok(Some(length));
                }
            }
            if self.clock.now() > deadline {
                return Ok(None);
            }
            match &mut self.lanes {
                [Some(only), None] => only.wait(deadline),
                _ => core::hint::spin_loop(),
            }
        }
    }
}
