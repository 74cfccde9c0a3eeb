//! The console device's test (virtio 1.2, 5.3): the handshake of the first named port, and an echo of
//! what each peer of the host sends until it goes.

use core::fmt;

use super::queue::{Queue, Segment};
use super::{Device, DeviceError, queue_vector};
use crate::clock::Clock;
use crate::memory::DmaBuffer;
use crate::pci::Function;
use crate::report::PaddedText;
use crate::serial::console_line;
use testguest_lib::command_line::Settings;
use testguest_lib::guest_agent::{GuestAgent, MAX_LINE_BYTES};

const FEATURE_MULTIPORT: u64 = 1 << 1;
/// Offset of `max_nr_ports`.
const MAX_PORTS: usize = 4;

const CONTROL_RECEIVE: u16 = 2;
const CONTROL_TRANSMIT: u16 = 3;
const PORT: u16 = 1;
const RECEIVE: u16 = 4;
const TRANSMIT: u16 = 5;

/// The port of messages that concern none.
const NO_PORT: u32 = u32::MAX;
const DEVICE_READY: u16 = 0;
const PORT_ADD: u16 = 1;
const PORT_READY: u16 = 3;
const CONSOLE_PORT: u16 = 4;
const PORT_OPEN: u16 = 6;
const PORT_NAME: u16 = 7;

const MESSAGE_BYTES: usize = 8;
const NAME_BYTES: usize = 64;
const CONTROL_BUFFERS: u16 = 8;
const CONTROL_BUFFER_BYTES: usize = 128;
const DATA_BUFFERS: u16 = 8;
const DATA_BUFFER_BYTES: usize = 1024;

/// How long nothing may happen.
const TIMEOUT_MS: u64 = 20_000;
/// How often an agent looks for requests. Its device interrupts, but this guest may be idle for long.
const AGENT_POLL_MS: u64 = 10;
const GREETING: &[u8] = b"TESTGUEST on the console port\r\n";

/// What the test found out about a device that passed.
pub struct ConsoleSummary {
    name: [u8; NAME_BYTES],
    has_console: bool,
    sessions: u64,
    echoed_bytes: u64,
    irqs: u32,
}

impl fmt::Display for ConsoleSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "name=\"{}\" console={} sessions={} echoed_bytes={} irqs={}",
            PaddedText(&self.name),
            self.has_console,
            self.sessions,
            self.echoed_bytes,
            self.irqs,
        )
    }
}

/// A control message: port, event, value.
type Message = (u32, u16, u16);

/// Buffers of one queue that the device fills.
struct Inbox<'a> {
    queue: Queue<'a>,
    memory: DmaBuffer,
    buffers: u16,
    buffer_bytes: usize,
}

impl<'a> Inbox<'a> {
    fn new(queue: Queue<'a>, buffers: u16, buffer_bytes: usize) -> Result<Self, DeviceError> {
        let bytes = usize::from(buffers) * buffer_bytes;
        let memory = DmaBuffer::new(bytes).ok_or(DeviceError::Missing("memory for a port"))?;
        Ok(Self {
            queue,
            memory,
            buffers,
            buffer_bytes,
        })
    }

    fn offer_all(&mut self) {
        for index in 0..self.buffers {
            self.offer(index);
        }
        self.queue.kick();
    }

    fn offer(&mut self, index: u16) {
        let at = u64::from(index) * self.buffer_bytes as u64;
        let segment = Segment {
            address: self.memory.address() + at,
            bytes: u32::try_from(self.buffer_bytes).unwrap_or(0),
            device_writes: true,
        };
        self.queue.submit(index, &[segment]);
    }

    /// Copies what came next into `data`; how many bytes, if anything came.
    fn take(&mut self, data: &mut [u8]) -> Result<Option<usize>, DeviceError> {
        let Some(used) = self.queue.take_used()? else {
            return Ok(None);
        };
        let bytes = usize::try_from(used.bytes).unwrap_or(usize::MAX);
        let part = data.get_mut(..bytes).filter(|_| bytes <= self.buffer_bytes);
        let Some(part) = part else {
            return Err(DeviceError::Mismatch {
                what: "bytes in a port's buffer",
                expected: self.buffer_bytes as u64,
                got: u64::from(used.bytes),
            });
        };
        self.memory
            .read(usize::from(used.head) * self.buffer_bytes, part);
        self.offer(used.head);
        self.queue.kick();
        Ok(Some(bytes))
    }
}

/// One buffer that the device reads.
struct Outbox<'a> {
    queue: Queue<'a>,
    memory: DmaBuffer,
}

impl<'a> Outbox<'a> {
    fn new(queue: Queue<'a>) -> Result<Self, DeviceError> {
        let memory = DmaBuffer::new(DATA_BUFFER_BYTES);
        let memory = memory.ok_or(DeviceError::Missing("memory for a port"))?;
        Ok(Self { queue, memory })
    }

    /// Sends `data` and waits until the device has taken it.
    fn send(&mut self, data: &[u8], clock: &Clock) -> Result<(), DeviceError> {
        self.memory.write(0, data);
        let segment = Segment {
            address: self.memory.address(),
            bytes: u32::try_from(data.len()).unwrap_or(0),
            device_writes: false,
        };
        self.queue.submit(0, &[segment]);
        self.queue.kick();
        let deadline = clock.after_ms(TIMEOUT_MS);
        self.queue.wait_used(deadline, "a port's output").map(drop)
    }
}

struct Ports<'a> {
    control_receive: Inbox<'a>,
    control_transmit: Outbox<'a>,
    receive: Inbox<'a>,
    transmit: Outbox<'a>,
    console: Outbox<'a>,
    clock: &'a Clock,
    name: [u8; NAME_BYTES],
    has_console: bool,
    /// The host has the port open.
    is_open: bool,
    opened: u64,
    closed: u64,
}

/// Makes the first named port, and echoes what as many peers send as `settings` say.
pub fn test(
    function: &Function,
    clock: &Clock,
    settings: &Settings,
) -> Result<ConsoleSummary, DeviceError> {
    let mut device = Device::open(function, clock, settings.mode, FEATURE_MULTIPORT)?;
    if device.features & FEATURE_MULTIPORT == 0 {
        return Err(DeviceError::Missing("VIRTIO_CONSOLE_F_MULTIPORT"));
    }
    if device.configuration.read32(MAX_PORTS) <= u32::from(PORT) {
        return Err(DeviceError::Missing("port 1"));
    }
    // All queues have one vector: whatever happens wakes the CPU.
    let vector = queue_vector(0);
    let mut queue = |index| device.queue(index, vector);
    let console = Outbox::new(queue(1)?)?;
    let mut ports = Ports {
        console,
        control_receive: Inbox::new(
            queue(CONTROL_RECEIVE)?,
            CONTROL_BUFFERS,
            CONTROL_BUFFER_BYTES,
        )?,
        control_transmit: Outbox::new(queue(CONTROL_TRANSMIT)?)?,
        receive: Inbox::new(queue(RECEIVE)?, DATA_BUFFERS, DATA_BUFFER_BYTES)?,
        transmit: Outbox::new(queue(TRANSMIT)?)?,
        clock,
        name: [0; NAME_BYTES],
        has_console: false,
        is_open: false,
        opened: 0,
        closed: 0,
    };
    device.start();
    let irqs_before = ports.receive.queue.irqs();
    ports.control_receive.offer_all();
    ports.receive.offer_all();
    ports.introduce()?;
    if ports.has_console {
        ports.console.send(GREETING, clock)?;
    }
    if settings.agent {
        ports.serve(GuestAgent::new(settings.agent_answers))?;
    }
    let echoed_bytes = ports.echo(settings.console_sessions)?;
    Ok(ConsoleSummary {
        name: ports.name,
        has_console: ports.has_console,
        sessions: ports.closed,
        echoed_bytes,
        irqs: ports.receive.queue.irqs().wrapping_sub(irqs_before),
    })
}

impl Ports<'_> {
    fn send_control(&mut self, (port, event, value): Message) -> Result<(), DeviceError> {
        let mut message = [0; MESSAGE_BYTES];
        message[..4].copy_from_slice(&port.to_le_bytes());
        message[4..6].copy_from_slice(&event.to_le_bytes());
        message[6..].copy_from_slice(&value.to_le_bytes());
        self.control_transmit.send(&message, self.clock)
    }

    /// Until the port has its name and is open here.
    fn introduce(&mut self) -> Result<(), DeviceError> {
        self.send_control((NO_PORT, DEVICE_READY, 1))?;
        self.wait(|ports| ports.name[0] != 0)?;
        self.send_control((u32::from(PORT), PORT_OPEN, 1))
    }

    /// Echoes until so many peers were there and are gone.
    fn echo(&mut self, sessions: u64) -> Result<u64, DeviceError> {
        let mut echoed = 0;
        let mut data = [0; DATA_BUFFER_BYTES];
        let mut deadline = self.clock.after_ms(TIMEOUT_MS);
        while self.closed < sessions {
            let seen = self.receive.queue.irqs();
            if let Some(bytes) = self.receive.take(&mut data)? {
                // The device reports a peer before it passes on what the peer sends.
                while self.receive_control()? {}
                if self.opened == 0 {
                    return Err(DeviceError::Refused("to tell of a peer that sends"));
                }
                self.transmit.send(&data[..bytes], self.clock)?;
                echoed += bytes as u64;
            } else if !self.receive_control()? {
                self.receive.queue.sleep(seen, deadline)?;
                continue;
            }
            deadline = self.clock.after_ms(TIMEOUT_MS);
        }
        Ok(echoed)
    }

    /// Answers requests, each of which is a line; for ever.
    fn serve(&mut self, mut agent: GuestAgent) -> Result<(), DeviceError> {
        console_line!("TESTGUEST agent");
        let mut data = [0; DATA_BUFFER_BYTES];
        let mut line = [0; MAX_LINE_BYTES];
        let mut length = 0;
        let mut answer = [0; MAX_LINE_BYTES];
        loop {
            let Some(bytes) = self.receive.take(&mut data)? else {
                if !self.receive_control()? {
                    self.clock.sleep_until(self.clock.after_ms(AGENT_POLL_MS));
                }
                continue;
            };
            for byte in &data[..bytes] {
                if *byte != b'\n' {
                    if let Some(place) = line.get_mut(length) {
                        *place = *byte;
                        length += 1;
                    }
                    continue;
                }
                if let Some(bytes) = agent.answer(&line[..length], &mut answer) {
                    self.transmit.send(&answer[..bytes], self.clock)?;
                }
                length = 0;
            }
        }
    }

    fn wait(&mut self, holds: impl Fn(&Self) -> bool) -> Result<(), DeviceError> {
        let deadline = self.clock.after_ms(TIMEOUT_MS);
        while !holds(self) {
            let seen = self.receive.queue.irqs();
            if !self.receive_control()? {
                self.receive.queue.sleep(seen, deadline)?;
            }
        }
        Ok(())
    }

    /// Takes a message of the device. False when there is none.
    fn receive_control(&mut self) -> Result<bool, DeviceError> {
        let mut message = [0; CONTROL_BUFFER_BYTES];
        let Some(bytes) = self.control_receive.take(&mut message)? else {
            return Ok(false);
        };
        let [a, b, c, d, event0, event1, value0, value1, ..] = message;
        let port = u32::from_le_bytes([a, b, c, d]);
        let event = u16::from_le_bytes([event0, event1]);
        let value = u16::from_le_bytes([value0, value1]);
        match (event, port) {
            (PORT_ADD, 0) => self.send_control((0, PORT_READY, 1))?,
            (CONSOLE_PORT, 0) => {
                self.has_console = true;
                self.send_control((0, PORT_OPEN, 1))?;
            }
            (PORT_ADD, port) if port == u32::from(PORT) => {
                self.send_control((port, PORT_READY, 1))?
            }
            (PORT_NAME, port) if port == u32::from(PORT) => {
                let name = message.get(MESSAGE_BYTES..bytes).unwrap_or_default();
                for (place, byte) in self.name.iter_mut().zip(name) {
                    *place = *byte;
                }
            }
            (PORT_OPEN, port) if port == u32::from(PORT) => self.on_open(value != 0)?,
            _ => {}
        }
        Ok(true)
    }

    fn on_open(&mut self, open: bool) -> Result<(), DeviceError> {
        if open == self.is_open {
            return Err(DeviceError::Refused("to open and close by turns"));
        }
        self.is_open = open;
        if open {
            self.opened += 1;
            console_line!("TESTGUEST port open={}", self.opened);
        } else {
            self.closed += 1;
            console_line!("TESTGUEST port closed={}", self.closed);
        }
        Ok(())
    }
}
