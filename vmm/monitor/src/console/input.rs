//! Where what is typed goes: flow control included, whichever device it is.

use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, PoisonError};

use vmm_devices::serial::SerialPort;
use vmm_devices::virtio::console::ConsoleLine;
use vmm_machine::SerialConfig;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::output::Output;

/// A console device, as whoever types sees it.
pub trait ConsoleInput {
    /// Takes what it has room for; returns how many bytes.
    fn input(&self, bytes: &[u8]) -> usize;
    /// Readable when there is room again after not all was taken.
    fn input_space_event(&self) -> RawFd;
    /// Drains [`input_space_event`](Self::input_space_event).
    fn clear_input_space_event(&self);
}

/// The serial port, with its interrupt.
#[derive(Clone)]
pub struct SerialLine {
    port: Arc<Mutex<SerialPort>>,
    interrupt: Arc<EventFd>,
    input_space: RawFd,
}

impl SerialLine {
    /// A port, and what the guest writes to it.
    pub fn new() -> io::Result<(Self, Arc<Output>)> {
        let output = Output::new()?;
        let interrupt = Arc::new(EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK)?);
        let port = SerialPort::new(Arc::clone(&interrupt), Arc::clone(&output) as _)?;
        let input_space = port.input_space_event();
        let line = Self {
            port: Arc::new(Mutex::new(port)),
            interrupt,
            input_space,
        };
        Ok((line, output))
    }

    /// The port, for the machine.
    pub fn config(&self) -> SerialConfig {
        SerialConfig {
            port: Arc::clone(&self.port),
            interrupt: Arc::clone(&self.interrupt),
        }
    }
}

impl ConsoleInput for SerialLine {
    fn input(&self, bytes: &[u8]) -> usize {
        let mut port = self.port.lock().unwrap_or_else(PoisonError::into_inner);
        port.input(bytes)
    }

    fn input_space_event(&self) -> RawFd {
        self.input_space
    }

    fn clear_input_space_event(&self) {
        let port = self.port.lock().unwrap_or_else(PoisonError::into_inner);
        port.clear_input_space_event();
    }
}

impl ConsoleInput for Arc<ConsoleLine> {
    fn input(&self, bytes: &[u8]) -> usize {
        ConsoleLine::input(self, bytes)
    }

    fn input_space_event(&self) -> RawFd {
        ConsoleLine::input_space_event(self)
    }

    fn clear_input_space_event(&self) {
        ConsoleLine::clear_input_space_event(self);
    }
}
