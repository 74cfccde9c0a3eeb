//! Consoles of a guest, the serial one and that of virtio: a ring of what the guest printed last, a
//! log file, and one attached client.
//!
//! The guest's output goes into the ring from the guest's own threads; the main thread takes it from
//! there to the log and to the client. A client that does not read misses output and never holds up
//! the guest. Input goes the other way with flow control: what the device has no room for stays in the
//! client's socket.

mod client;
mod input;
mod output;
mod serve;

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use vmm_sys::stream::{Received, Sent, receive_now, send_now};

pub use self::client::{NewClient, client_name, stream_socket};
pub use self::input::{ConsoleInput, SerialLine};
pub use self::output::Output;
use self::output::OutputState;

use crate::log_file::LogFile;

const SEND_CHUNK_BYTES: usize = 16 << 10;
const INPUT_CHUNK_BYTES: usize = 4096;

/// An attached client.
struct Client {
    socket: OwnedFd,
    name: String,
    /// Number of the next byte to send.
    position: u64,
    /// The socket took less than it was offered.
    is_full: bool,
    /// Typed, not yet taken by the device.
    typed: Vec<u8>,
    /// The client has closed its sending side.
    input_ended: bool,
}

/// What the client's socket is to be polled for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientInterest {
    /// For reading.
    pub readable: bool,
    /// For writing.
    pub writable: bool,
}

/// A console, as the main thread sees it.
pub struct Console {
    output: Arc<Output>,
    input: Box<dyn ConsoleInput>,
    client: Option<Client>,
}

/// What a guest printed last.
#[derive(Debug, PartialEq, Eq)]
pub struct Past {
    /// Number of the first of `bytes`.
    pub offset: u64,
    /// As far as they are kept.
    pub bytes: Vec<u8>,
    /// Bytes ever printed.
    pub printed: u64,
    /// Bytes in the log's file, of those ever printed; none without a log.
    pub logged: Option<u64>,
}

/// Somebody else is attached.
#[derive(Debug, PartialEq, Eq)]
pub struct ConsoleBusy {
    /// Name of the client that is attached.
    pub client: String,
}

impl Console {
    /// A console without log and client.
    pub fn new(output: Arc<Output>, input: Box<dyn ConsoleInput>) -> Self {
        Self {
            output,
            input,
            client: None,
        }
    }

    /// Keeps a log from now on.
    pub fn set_log(&self, log: LogFile) {
        self.output.set_log(log);
    }

    /// Readable when the guest printed a line, or the start of one a moment ago.
    pub fn output_event(&self) -> RawFd {
        self.output.event()
    }

    /// Readable when the device has room for input again.
    pub fn input_space_event(&self) -> RawFd {
        self.input.input_space_event()
    }

    /// Attaches a client, in place of another one with `force`. `replay` is the byte from which on it
    /// wants what was printed already, as far as the ring holds it. Answers which byte it gets first.
    pub fn attach(
        &mut self,
        socket: OwnedFd,
        name: String,
        replay: Option<u64>,
        force: bool,
    ) -> Result<u64, ConsoleBusy> {
        if let (Some(present), false) = (&self.client, force) {
            return Err(ConsoleBusy {
                client: present.name.clone(),
            });
        }
        let state = self.output.lock();
        let position = replay.map_or(state.printed(), |from| {
            from.clamp(state.oldest(), state.printed())
        });
        drop(state);
        self.client = Some(Client {
            socket,
            name,
            position,
            is_full: false,
            typed: Vec::new(),
            input_ended: false,
        });
        self.serve_output();
        Ok(position)
    }

    /// What the ring holds from byte `from` on. Whoever is attached does not notice.
    pub fn past(&self, from: u64) -> Past {
        let state = self.output.lock();
        let offset = from.clamp(state.oldest(), state.printed());
        let mut bytes = Vec::new();
        let mut next = offset;
        while next < state.printed() {
            let stretch = state.stretch(next, usize::MAX);
            bytes.extend_from_slice(stretch);
            next += stretch.len() as u64;
        }
        Past {
            offset,
            bytes,
            printed: state.printed(),
            logged: state.logged(),
        }
    }

    /// The client's socket and what it is to be polled for.
    pub fn client(&self) -> Option<(RawFd, ClientInterest)> {
        let client = self.client.as_ref()?;
        let interest = ClientInterest {
            readable: client.typed.is_empty() && !client.input_ended,
            writable: client.is_full,
        };
        Some((client.socket.as_raw_fd(), interest))
    }

    /// Takes output to log and client. Returns why the log was given up, once.
    pub fn serve_output(&mut self) -> Option<io::Error> {
        let mut state = self.output.take_printed();
        let error = state.take_log_error();
        if let Some(client) = &mut self.client
            && !send_output(&state, client)
        {
            self.client = None;
        }
        error
    }

    /// The client's socket can be written to again.
    pub fn on_client_writable(&mut self) -> Option<io::Error> {
        if let Some(client) = &mut self.client {
            client.is_full = false;
        }
        self.serve_output()
    }

    /// The client typed something, or is gone.
    pub fn on_client_readable(&mut self) {
        let Some(client) = &mut self.client else {
            return;
        };
        let mut buffer = [0; INPUT_CHUNK_BYTES];
        match receive_now(&client.socket, &mut buffer) {
            Received::Ended => client.input_ended = true,
            Received::Bytes(length) => {
                client
                    .typed
                    .extend_from_slice(buffer.get(..length).unwrap_or_default());
            }
            Received::Nothing => {}
        }
        self.serve_input();
    }

    /// The client's socket hung up: nothing more can be sent.
    pub fn on_client_gone(&mut self) {
        self.client = None;
    }

    /// Gives the device what it has room for.
    pub fn serve_input(&mut self) {
        // Also for a client that is gone: the main thread would not come to rest.
        self.input.clear_input_space_event();
        let Some(client) = &mut self.client else {
            return;
        };
        if !client.typed.is_empty() {
            let taken = self.input.input(&client.typed);
            client.typed.drain(..taken.min(client.typed.len()));
        }
    }
}

/// Whether the client is still there.
fn send_output(state: &OutputState, client: &mut Client) -> bool {
    client.position = client.position.max(state.oldest());
    while !client.is_full && client.position < state.printed() {
        let bytes = state.stretch(client.position, SEND_CHUNK_BYTES);
        match send_now(&client.socket, bytes) {
            Sent::Bytes(sent) => client.position += sent as u64,
            Sent::Full => client.is_full = true,
            Sent::Ended => return false,
        }
    }
    true
}
