//! The main thread: one loop over the control socket, its peers, the console, signals and what the
//! machine reports. Nothing here waits for anybody.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use nix::sys::signalfd::SignalFd;
use proto_vmm::v1::{self, frame::Body};
use vmm_machine::{MachineThread, Status, chain};
use vmm_sys::peer::Peer;

use crate::answers::{PendingAnswers, error};
use crate::connection::{Connection, ConnectionError};
use crate::console::{Console, SerialLine};
use crate::console_ports::ServedConsolePorts;
use crate::exit_record::Recorder;
use crate::guest::Guest;
use crate::identity::Identity;
use crate::log::{Level, Log};
use crate::notices::Notices;
use crate::poller::{Poller, Ready, Source, Terminal};
use crate::status;
use crate::timeline::ProcessTimes;

/// Connections at a time. An agent needs one; the rest is for tools, and for an agent's successor.
const MAX_CONNECTIONS: usize = 8;
/// At the end, peers and console get this long to take what is left for them.
const FAREWELL: Duration = Duration::from_millis(200);

/// A peer that is refused.
#[derive(Debug, thiserror::Error)]
enum RefusedPeer {
    #[error("its credentials cannot be read")]
    Unknown(#[source] io::Error),
    #[error("user id {uid} (process {pid}) is not allowed")]
    User { uid: u32, pid: i32 },
    #[error("there are {MAX_CONNECTIONS} connections already")]
    TooMany,
    #[error("it is gone")]
    Gone(#[source] io::Error),
    #[error("the refusal cannot be sent")]
    NotSent(#[source] ConnectionError),
}

/// Everything of the main thread.
pub struct Server {
    listener: UnixListener,
    /// User ids that may connect.
    allowed: Vec<u32>,
    pub(crate) identity: Identity,
    pub(crate) log: Log,
    pub(crate) times: ProcessTimes,
    pub(crate) poller: Poller,
    signals: SignalFd,
    pub(crate) notices: Notices,
    /// COM1, and the console on it.
    pub(crate) serial: SerialLine,
    pub(crate) console: Console,
    /// Of the virtio console, if the machine has one.
    pub(crate) console_ports: Option<ServedConsolePorts>,
    pub(crate) recorder: Recorder,
    connections: BTreeMap<u32, Connection>,
    next_connection: u32,
    pub(crate) guest: Option<Guest>,
    /// Waits for the configuration.
    pub(crate) machine: MachineThread,
    pub(crate) pending: PendingAnswers,
    /// Number of the last event.
    pub(crate) sequence: u64,
    /// The signal that asked us to end.
    pub(crate) signal: u32,
    /// The process ends at this time, or when everything is sent.
    pub(crate) farewell: Option<Instant>,
}

impl Server {
    /// Prepares to serve `listener`; `signals` are those that end the process.
    pub fn new(
        listener: UnixListener,
        signals: SignalFd,
        controllers: Vec<u32>,
        identity: Identity,
        log: Log,
        machine: MachineThread,
    ) -> io::Result<Self> {
        let recorder = Recorder::default();
        recorder.install_panic_hook(&log);
        let mut allowed = controllers;
        allowed.extend([0, nix::unistd::geteuid().as_raw()]);
        let (serial, output) = SerialLine::new()?;
        let console = Console::new(output, Box::new(serial.clone()));
        Ok(Self {
            listener,
            allowed,
            identity,
            log,
            times: ProcessTimes::begin(),
            poller: Poller::new()?,
            signals,
            notices: Notices::new()?,
            serial,
            console,
            console_ports: None,
            recorder,
            connections: BTreeMap::new(),
            next_connection: 0,
            guest: None,
            machine,
            pending: PendingAnswers::default(),
            sequence: 0,
            signal: 0,
            farewell: None,
        })
    }

    /// Serves until the guest has ended and what is queued for peers was sent; `times` are those of the process so far.
    pub fn serve(mut self, times: ProcessTimes) -> io::Result<()> {
        self.times = times;
        let fixed = [
            (Source::Listener, self.listener.as_raw_fd()),
            (Source::Signals, self.signals.as_raw_fd()),
            (Source::Notices, self.notices.event()),
            (
                Source::ConsoleOutput(Terminal::Serial),
                self.console.output_event(),
            ),
            (
                Source::ConsoleInputSpace(Terminal::Serial),
                self.console.input_space_event(),
            ),
        ];
        for (source, fd) in fixed {
            self.poller.watch(source, fd, true, false)?;
        }
        self.log.info("started", "waiting for a configuration");
        self.times.note_serving();
        while !self.is_over() {
            self.watch_peers();
            for ready in self.poller.wait(self.patience())? {
                self.on_ready(ready);
            }
            self.drop_late_peers();
        }
        Ok(())
    }

    /// Begins the end of the process.
    pub(crate) fn begin_farewell(&mut self) {
        self.farewell
            .get_or_insert_with(|| Instant::now() + FAREWELL);
    }

    fn is_over(&self) -> bool {
        let Some(deadline) = self.farewell else {
            return false;
        };
        let unsent = self.connections.values().any(Connection::wants_to_write);
        let unprinted = self.is_client_behind();
        (!unsent && !unprinted) || Instant::now() >= deadline
    }

    /// How long to wait at most.
    fn patience(&self) -> Option<Duration> {
        let deadlines = self.connections.values().filter_map(Connection::deadline);
        let rests = self
            .console_ports
            .as_ref()
            .and_then(ServedConsolePorts::deadline);
        deadlines
            .chain(self.farewell)
            .chain(rests)
            .min()
            .map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// A peer that cannot be watched is closed: it must not end the guest.
    fn watch_peers(&mut self) {
        let mut failed = Vec::new();
        for (number, connection) in &self.connections {
            let source = Source::Connection(*number);
            let writable = connection.wants_to_write();
            if let Err(error) = self.poller.watch(source, connection.fd(), true, writable) {
                failed.push((*number, error));
            }
        }
        for (number, error) in failed {
            self.close(number, &error.to_string());
        }
        self.watch_clients();
        self.watch_listeners();
    }

    fn on_ready(&mut self, ready: Ready) {
        match ready.source {
            Source::Listener => self.accept(),
            Source::Signals => self.on_signal(),
            Source::Notices => self.on_notices(),
            Source::ConsoleOutput(terminal) => self.on_console_output(terminal),
            Source::ConsoleInputSpace(terminal) => self.on_console_input_space(terminal),
            Source::ConsoleClient(terminal) => self.on_console_client(terminal, ready),
            Source::PortListener(number) => self.accept_peers(number),
            Source::Connection(number) => self.on_connection(number, ready),
        }
    }

    fn accept(&mut self) {
        loop {
            let socket = match self.listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    self.log.repeated(Level::Warn, "accept", &error.to_string());
                    return;
                }
            };
            if let Err(refused) = self.admit(socket) {
                self.log
                    .repeated(Level::Warn, "peer-refused", &chain(&refused));
            }
        }
    }

    fn admit(&mut self, socket: UnixStream) -> Result<(), RefusedPeer> {
        let peer = Peer::of(&socket).map_err(RefusedPeer::Unknown)?;
        if !self.allowed.contains(&peer.uid) {
            return Err(RefusedPeer::User {
                uid: peer.uid,
                pid: peer.pid,
            });
        }
        if self.connections.len() >= MAX_CONNECTIONS {
            let busy = error(v1::ErrorCode::Busy, &RefusedPeer::TooMany.to_string());
            let hello = v1::Hello {
                refusal: Some(busy),
                ..self.hello()
            };
            // One that takes no frame learns of it by the end of its connection.
            let sent = Connection::new(socket).map(|mut peer| peer.send(Body::Hello(hello)));
            return match sent {
                Ok(Ok(())) => Err(RefusedPeer::TooMany),
                Ok(Err(ConnectionError::Send(error))) | Err(error) => Err(RefusedPeer::Gone(error)),
                Ok(Err(error)) => Err(RefusedPeer::NotSent(error)),
            };
        }
        let connection = Connection::new(socket).map_err(RefusedPeer::Gone)?;
        let number = self.next_connection;
        self.next_connection = self.next_connection.wrapping_add(1);
        self.connections.insert(number, connection);
        let hello = Body::Hello(self.hello());
        self.send(number, hello);
        Ok(())
    }

    fn hello(&self) -> v1::Hello {
        let (uid, incarnation) = match &self.guest {
            Some(guest) => (guest.vmi_uid.as_str(), guest.incarnation),
            None => ("", 0),
        };
        v1::Hello {
            protocol_min: proto_vmm::PROTOCOL_MIN,
            protocol_max: proto_vmm::PROTOCOL_MAX,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            identity: Some(self.identity.to_wire(uid, incarnation)),
            status: Some(self.status()),
            refusal: None,
        }
    }

    fn on_connection(&mut self, number: u32, ready: Ready) {
        if ready.writable {
            let result = self.connection(number).map(Connection::flush);
            self.close_if_failed(number, result.unwrap_or(Ok(())));
        }
        if ready.readable || ready.hung_up {
            let result = self.connection(number).map(Connection::receive);
            let received = result.unwrap_or(Ok(()));
            // What came whole before the end is still carried out.
            self.on_frames(number);
            self.close_if_failed(number, received);
        }
    }

    fn connection(&mut self, number: u32) -> Option<&mut Connection> {
        self.connections.get_mut(&number)
    }

    fn on_frames(&mut self, number: u32) {
        while let Some(connection) = self.connection(number) {
            let protocol = connection.protocol;
            match connection.next_frame() {
                Ok(None) => return,
                Ok(Some((frame, descriptors))) => match (frame.body, protocol) {
                    (Some(Body::HelloAck(ack)), None) => self.on_hello_ack(number, &ack),
                    (Some(Body::Request(request)), Some(_)) => {
                        self.on_request(number, request, descriptors);
                    }
                    _ => self.close(number, "it sent a frame that is not its turn to send"),
                },
                Err(error) => {
                    self.close(number, &chain(&error));
                    return;
                }
            }
        }
    }

    fn on_hello_ack(&mut self, number: u32, ack: &v1::HelloAck) {
        let known = proto_vmm::PROTOCOL_MIN..=proto_vmm::PROTOCOL_MAX;
        if !known.contains(&ack.protocol) {
            let text = format!("it wants version {} of the protocol", ack.protocol);
            return self.close(number, &text);
        }
        self.log.repeated(Level::Info, "agent", &ack.agent_version);
        if let Some(connection) = self.connection(number) {
            connection.complete_handshake(ack.protocol);
        }
    }

    /// Sends, or closes a connection that cannot be sent to.
    pub(crate) fn send(&mut self, number: u32, body: Body) {
        if let Some(connection) = self.connection(number) {
            let result = connection.send(body);
            self.close_if_failed(number, result);
        }
    }

    /// Sends an event to all subscribers but those whose first status is newer than the event.
    pub(crate) fn broadcast(&mut self, kind: v1::EventKind, status: &Status) {
        self.sequence += 1;
        let exit = self.guest.as_ref().and_then(|guest| guest.exit.as_ref());
        let event = v1::Event {
            sequence: self.sequence,
            status: Some(status::of_machine(status, exit)),
            kind: kind.into(),
        };
        let subscribers: Vec<u32> = self
            .connections
            .iter()
            .filter(|(_, connection)| {
                let seen = connection.subscribed_at;
                seen.is_some_and(|seen| status.updates > seen)
            })
            .map(|(number, _)| *number)
            .collect();
        for number in subscribers {
            self.send(number, Body::Event(event.clone()));
        }
    }

    pub(crate) fn subscribe(&mut self, number: u32) {
        let status = self.guest.as_ref().map(|guest| guest.handle.status());
        if let Some(connection) = self.connection(number) {
            connection.subscribed_at = Some(status.as_ref().map_or(0, |status| status.updates));
        }
        let exit = self.guest.as_ref().and_then(|guest| guest.exit.as_ref());
        let current = v1::Event {
            sequence: self.sequence,
            status: Some(match &status {
                Some(status) => status::of_machine(status, exit),
                None => status::unconfigured(),
            }),
            kind: v1::EventKind::Current.into(),
        };
        self.send(number, Body::Event(current));
    }

    fn close_if_failed(&mut self, number: u32, result: Result<(), ConnectionError>) {
        match result {
            Ok(()) => {}
            // Agents come and go.
            Err(ConnectionError::Closed) => self.remove(number),
            Err(error) => self.close(number, &chain(&error)),
        }
    }

    fn close(&mut self, number: u32, why: &str) {
        self.log.repeated(Level::Warn, "peer-closed", why);
        self.remove(number);
    }

    fn remove(&mut self, number: u32) {
        self.poller.forget(Source::Connection(number));
        self.connections.remove(&number);
    }

    fn drop_late_peers(&mut self) {
        let now = Instant::now();
        let late: Vec<u32> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.deadline().is_some_and(|at| at <= now))
            .map(|(number, _)| *number)
            .collect();
        for number in late {
            self.close(number, &ConnectionError::Late.to_string());
        }
    }

    fn on_signal(&mut self) {
        while let Ok(Some(info)) = self.signals.read_signal() {
            self.on_termination(info.ssi_signo);
        }
    }
}
