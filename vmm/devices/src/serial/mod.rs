//! The serial port: a 16550A at an I/O port range, on `vm-superio`.
//!
//! Output goes to a [`ConsoleOutput`], which never blocks. Input has flow control: the FIFO takes
//! what it has room for, the rest stays with whoever brings it, and an eventfd tells when there is
//! room again. So nothing typed or pasted is lost, however slowly the guest reads.

mod state;

#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use vm_superio::Trigger;
use vm_superio::serial::{Serial, SerialEvents};
use vmm_sys::event;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use crate::bus::BusDevice;

/// Number of ports.
pub const PORTS: u64 = 8;

/// Modem control register: leaving loopback makes room for input.
const MODEM_CONTROL: u8 = 4;

/// Where the guest's output goes.
pub trait ConsoleOutput: Send + Sync {
    /// Takes output. Called from vCPU threads with the port locked: it must not block and has to
    /// decide by itself what it drops when nobody takes it.
    fn write(&self, bytes: &[u8]);
}

/// A 16550A.
pub struct SerialPort {
    uart: Serial<Interrupt, InputSpace, Output>,
    interrupt: Arc<EventFd>,
    room: InputSpace,
    output: Arc<dyn ConsoleOutput>,
}

impl SerialPort {
    /// A port after power-on. `interrupt` is written to raise the port's interrupt line (an edge).
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn new(interrupt: Arc<EventFd>, output: Arc<dyn ConsoleOutput>) -> io::Result<Self> {
        let room = InputSpace {
            event: Arc::new(EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?),
            wanted: Arc::new(AtomicBool::new(false)),
        };
        Ok(Self {
            uart: power_on(&interrupt, &room, &output),
            interrupt,
            room,
            output,
        })
    }

    /// Gives input to the guest; returns how many bytes were taken. When not all were,
    /// [`input_space_event`](Self::input_space_event) becomes readable once more can be.
    pub fn input(&mut self, bytes: &[u8]) -> usize {
        let room = self.uart.fifo_capacity();
        let taken = if room == 0 {
            0
        } else {
            // The error is the interrupt's, whose eventfd counter is full: the bytes are in the FIFO
            // and an interrupt is pending.
            let result = self.uart.enqueue_raw_bytes(bytes);
            result.unwrap_or(bytes.len().min(room))
        };
        if taken < bytes.len() {
            self.room.wanted.store(true, Ordering::Relaxed);
        }
        taken
    }

    /// An eventfd, non-blocking, readable when there is room again. To be drained by the reader.
    pub fn input_space_event(&self) -> RawFd {
        self.room.event.as_raw_fd()
    }

    /// Drains [`input_space_event`](Self::input_space_event).
    pub fn clear_input_space_event(&self) {
        event::clear(&self.room.event);
    }

    /// Goes back to the state after power-on; input in the FIFO is lost.
    pub fn reset(&mut self) {
        self.uart = power_on(&self.interrupt, &self.room, &self.output);
        self.room.available();
    }
}

impl BusDevice for SerialPort {
    fn read(&mut self, offset: u64, data: &mut [u8]) {
        // Registers are bytes; a wider access reads the first and finds the bus empty elsewhere.
        data.fill(0xff);
        if let (Some(byte), Some(register)) = (data.first_mut(), register(offset)) {
            *byte = self.uart.read(register);
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        if let (Some(byte), Some(register)) = (data.first(), register(offset)) {
            // Neither output nor an interrupt fails.
            self.uart.write(register, *byte).unwrap_or_default();
            if register == MODEM_CONTROL {
                self.room.available();
            }
        }
    }
}

fn register(offset: u64) -> Option<u8> {
    u8::try_from(offset).ok().filter(|_| offset < PORTS)
}

fn power_on(
    interrupt: &Arc<EventFd>,
    room: &InputSpace,
    output: &Arc<dyn ConsoleOutput>,
) -> Serial<Interrupt, InputSpace, Output> {
    let interrupt = Interrupt(Arc::clone(interrupt));
    Serial::with_events(interrupt, room.clone(), Output(Arc::clone(output)))
}

struct Interrupt(Arc<EventFd>);

impl Trigger for Interrupt {
    type E = io::Error;

    fn trigger(&self) -> io::Result<()> {
        event::signal(&self.0);
        Ok(())
    }
}

/// Tells whoever has input left that the FIFO was emptied.
#[derive(Clone)]
struct InputSpace {
    event: Arc<EventFd>,
    wanted: Arc<AtomicBool>,
}

impl InputSpace {
    fn available(&self) {
        if self.wanted.swap(false, Ordering::Relaxed) {
            event::signal(&self.event);
        }
    }
}

impl SerialEvents for InputSpace {
    fn buffer_read(&self) {}

    fn out_byte(&self) {}

    fn tx_lost_byte(&self) {}

    fn in_buffer_empty(&self) {
        self.available();
    }
}

struct Output(Arc<dyn ConsoleOutput>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
