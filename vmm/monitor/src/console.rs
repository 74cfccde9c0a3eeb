//! The serial console: a ring of what the guest printed last, its log file, and one attached client.
//!
//! The guest's output goes into the ring from vCPU threads; the main thread takes it from there to
//! the log and to the client. A client that does not read misses output and never holds up the
//! guest. Input goes the other way with flow control: what the port has no room for stays in the
//! client's socket.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, send};
use vmm_devices::serial::{ConsoleOutput, SerialPort};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use crate::log_file::LogFile;

/// What a client may see of the past.
const RING_BYTES: usize = 64 << 10;
/// When the main thread is this far behind, the vCPU itself writes the log: nothing is lost there.
const MAX_UNLOGGED_BYTES: u64 = 32 << 10;
const SEND_CHUNK_BYTES: usize = 16 << 10;
const INPUT_CHUNK_BYTES: usize = 4096;

/// The guest's side of the console.
pub struct Output {
    state: Mutex<OutputState>,
    wake: EventFd,
}

#[derive(Default)]
struct OutputState {
    ring: VecDeque<u8>,
    /// Bytes ever printed; the ring holds the last of them.
    printed: u64,
    log: Option<LogFile>,
    /// Bytes that the log was given, of those ever printed.
    logged: u64,
    log_error: Option<io::Error>,
    /// The main thread was woken and has not looked yet.
    woken: bool,
}

impl OutputState {
    /// Number of the oldest byte in the ring.
    fn oldest(&self) -> u64 {
        self.printed - self.ring.len() as u64
    }

    /// Bytes from number `from` on, at most `limit` of them, in one stretch.
    fn stretch(&self, from: u64, limit: usize) -> &[u8] {
        let skip = usize::try_from(from.saturating_sub(self.oldest())).unwrap_or(usize::MAX);
        let (first, second) = self.ring.as_slices();
        let bytes = match skip.checked_sub(first.len()) {
            None => first.get(skip..),
            Some(skip) => second.get(skip..),
        };
        let bytes = bytes.unwrap_or_default();
        bytes.get(..limit.min(bytes.len())).unwrap_or_default()
    }

    /// Gives the log what it has not got. A log that fails is given up, once, with its error kept.
    fn flush_log(&mut self) {
        let Some(mut log) = self.log.take() else {
            self.logged = self.printed;
            return;
        };
        self.logged = self.logged.max(self.oldest());
        while self.logged < self.printed {
            let bytes = self.stretch(self.logged, RING_BYTES);
            let length = bytes.len() as u64;
            if let Err(error) = log.append(bytes) {
                self.log_error = Some(error);
                self.logged = self.printed;
                return;
            }
            self.logged += length;
        }
        self.log = Some(log);
    }
}

impl Output {
    fn lock(&self) -> MutexGuard<'_, OutputState> {
        // Ring and numbers are whole after each step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConsoleOutput for Output {
    fn write(&self, bytes: &[u8]) {
        let mut state = self.lock();
        for byte in bytes {
            if state.ring.len() == RING_BYTES {
                state.ring.pop_front();
            }
            state.ring.push_back(*byte);
            state.printed += 1;
            if state.printed - state.logged >= MAX_UNLOGGED_BYTES {
                state.flush_log();
            }
        }
        if !state.woken {
            state.woken = true;
            // Fails only when the counter is full, and then the main thread is awake.
            drop(self.wake.write(1));
        }
    }
}

/// An attached client.
struct Client {
    socket: OwnedFd,
    name: String,
    /// Number of the next byte to send.
    position: u64,
    /// The socket took less than it was offered.
    is_full: bool,
    /// Typed, not yet taken by the port.
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

/// The console, as the main thread sees it.
pub struct Console {
    output: Arc<Output>,
    port: Arc<Mutex<SerialPort>>,
    interrupt: Arc<EventFd>,
    room: RawFd,
    client: Option<Client>,
}

/// Somebody else is attached.
#[derive(Debug, PartialEq, Eq)]
pub struct ConsoleBusy {
    /// Who.
    pub client: String,
}

impl Console {
    /// A console without log and client.
    pub fn new() -> io::Result<Self> {
        let output = Arc::new(Output {
            state: Mutex::default(),
            wake: EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK)?,
        });
        let interrupt = Arc::new(EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK)?);
        let port = SerialPort::new(Arc::clone(&interrupt), Arc::clone(&output) as _)?;
        let room = port.room_event();
        Ok(Self {
            output,
            port: Arc::new(Mutex::new(port)),
            interrupt,
            room,
            client: None,
        })
    }

    /// The port, for the machine.
    pub fn port(&self) -> Arc<Mutex<SerialPort>> {
        Arc::clone(&self.port)
    }

    /// What the port's interrupt is raised by, for the machine.
    pub fn interrupt(&self) -> Arc<EventFd> {
        Arc::clone(&self.interrupt)
    }

    /// Keeps a log from now on.
    pub fn set_log(&self, log: LogFile) {
        let mut state = self.output.lock();
        state.logged = state.printed;
        state.log = Some(log);
    }

    /// Readable when the guest printed something.
    pub fn output_event(&self) -> RawFd {
        self.output.wake.as_raw_fd()
    }

    /// Readable when the port has room for input again.
    pub fn room_event(&self) -> RawFd {
        self.room
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
        let position = replay.map_or(state.printed, |from| {
            from.clamp(state.oldest(), state.printed)
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
        // Fails only when nobody woke us.
        drop(self.output.wake.read());
        let mut state = self.output.lock();
        state.woken = false;
        state.flush_log();
        let error = state.log_error.take();
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
        let flags = MsgFlags::MSG_DONTWAIT;
        match recv(client.socket.as_raw_fd(), &mut buffer, flags) {
            Ok(0) => client.input_ended = true,
            Ok(length) => {
                client
                    .typed
                    .extend_from_slice(buffer.get(..length).unwrap_or_default());
            }
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(_) => self.client = None,
        }
        self.serve_input();
    }

    /// The client's socket hung up: nothing more can be sent.
    pub fn on_client_gone(&mut self) {
        self.client = None;
    }

    /// Gives the port what it has room for.
    pub fn serve_input(&mut self) {
        let Some(client) = &mut self.client else {
            return;
        };
        let mut port = self.port.lock().unwrap_or_else(PoisonError::into_inner);
        port.acknowledge_room();
        if !client.typed.is_empty() {
            let taken = port.input(&client.typed);
            client.typed.drain(..taken.min(client.typed.len()));
        }
    }
}

/// Whether the client is still there.
fn send_output(state: &OutputState, client: &mut Client) -> bool {
    client.position = client.position.max(state.oldest());
    while !client.is_full && client.position < state.printed {
        let bytes = state.stretch(client.position, SEND_CHUNK_BYTES);
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        match send(client.socket.as_raw_fd(), bytes, flags) {
            Ok(sent) => client.position += sent as u64,
            Err(Errno::EAGAIN) => client.is_full = true,
            Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn read_all(socket: &mut UnixStream) -> Vec<u8> {
        socket.set_nonblocking(true).unwrap();
        let mut all = Vec::new();
        // Ends with WouldBlock.
        socket.read_to_end(&mut all).unwrap_err();
        all
    }

    #[test]
    fn a_client_sees_the_past_only_when_it_asks() {
        let mut console = Console::new().unwrap();
        console.output.write(b"before ");
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        console
            .attach(theirs.into(), "a".into(), Some(0), false)
            .unwrap();
        console.output.write(b"after");
        console.serve_output();
        assert_eq!(read_all(&mut ours), b"before after");

        let (mut ours, theirs) = UnixStream::pair().unwrap();
        console
            .attach(theirs.into(), "b".into(), None, true)
            .unwrap();
        console.output.write(b"!");
        console.serve_output();
        assert_eq!(read_all(&mut ours), b"!");
    }

    #[test]
    fn a_client_that_comes_again_goes_on_where_it_was() {
        let mut console = Console::new().unwrap();
        console.output.write(b"0123456789");
        for (from, offset, text) in [(4, 4, "456789"), (99, 10, ""), (0, 0, "0123456789")] {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            let first = console.attach(theirs.into(), "a".into(), Some(from), true);
            assert_eq!(first, Ok(offset));
            assert_eq!(read_all(&mut ours), text.as_bytes());
        }
    }

    #[test]
    fn a_second_client_is_refused_with_the_name_of_the_first() {
        let mut console = Console::new().unwrap();
        let (_a, theirs) = UnixStream::pair().unwrap();
        console
            .attach(theirs.into(), "first".into(), Some(0), false)
            .unwrap();
        let (_b, theirs) = UnixStream::pair().unwrap();
        let busy = console.attach(theirs.into(), "second".into(), Some(0), false);
        assert_eq!(busy.unwrap_err().client, "first");
    }

    #[test]
    fn a_client_that_does_not_read_misses_output_and_holds_nobody_up() {
        let mut console = Console::new().unwrap();
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        console
            .attach(theirs.into(), "slow".into(), None, false)
            .unwrap();
        for _ in 0..100 {
            console.output.write(&[b'x'; 50_000]);
            console.serve_output();
        }
        assert!(console.client().unwrap().1.writable);
        assert!(!read_all(&mut ours).is_empty());
        console.on_client_writable();
        assert_eq!(read_all(&mut ours).len(), RING_BYTES);
    }

    #[test]
    fn the_log_has_everything_even_when_nobody_serves() {
        let console = Console::new().unwrap();
        let file = tempfile::tempfile().unwrap();
        console.set_log(LogFile::new(file.try_clone().unwrap(), 10 << 20).unwrap());
        for _ in 0..20 {
            console.output.write(&[b'x'; 50_000]);
        }
        let logged = file.metadata().unwrap().len();
        assert!(logged + MAX_UNLOGGED_BYTES > 1_000_000);
    }

    #[test]
    fn pasted_text_waits_for_room() {
        let mut console = Console::new().unwrap();
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        console
            .attach(theirs.into(), "a".into(), None, false)
            .unwrap();
        ours.write_all(&[b'y'; 1000]).unwrap();
        console.on_client_readable();
        assert!(!console.client().unwrap().1.readable);
        assert!(!console.client.as_ref().unwrap().typed.is_empty());
    }
}
