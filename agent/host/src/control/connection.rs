//! One connection to a VMM.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};
use proto_vmm::v1::{self, Frame, frame::Body, request::Kind};
use proto_vmm::{FrameDecoder, FrameError, common_version, encode_frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::socket::SocketDir;
use super::tamed::tamed;

/// How long a VMM may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadlines {
    /// To accept a connection and say hello.
    pub(crate) hello: Duration,
    /// To answer a request.
    pub(crate) request: Duration,
    /// To build the machine.
    pub(crate) configure: Duration,
}

impl Deadlines {
    /// For an observation, which says "unknown" rather than wait.
    pub(crate) fn of_an_observation() -> Self {
        Self {
            hello: Duration::from_secs(1),
            ..Self::of_an_action()
        }
    }

    /// For an action, which has all the time that a busy or emulated host needs.
    pub(crate) fn of_an_action() -> Self {
        Self {
            hello: Duration::from_secs(15),
            request: Duration::from_secs(15),
            configure: Duration::from_secs(60),
        }
    }
}

/// Why a VMM did not do or answer what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlError {
    /// Nobody listens on the socket, or there is no socket.
    #[error("no VMM listens on its control socket")]
    NobodyListens,
    /// The connection failed or ended early.
    #[error("the connection to the VMM failed")]
    Io(#[source] io::Error),
    /// The VMM closed the connection before it answered.
    #[error("the VMM closed the connection")]
    Closed,
    /// It takes no more connections for now.
    #[error("the VMM is busy: {0}")]
    Busy(String),
    /// It took too long.
    #[error("the VMM did not {0} within {1:?}")]
    Late(&'static str, Duration),
    /// The peer breaks the protocol.
    #[error("the VMM does not speak the protocol")]
    Frame(#[from] FrameError),
    /// The peer sent a frame that does not belong here.
    #[error("the VMM sent {0} out of turn")]
    OutOfTurn(&'static str),
    /// No common version.
    #[error("the VMM {program} speaks protocol versions {min} to {max}, this agent {PROTOCOLS}")]
    Version {
        /// Release of the VMM.
        program: String,
        /// Its lowest version.
        min: u32,
        /// Its highest version.
        max: u32,
    },
    /// The VMM refused.
    #[error("{message}")]
    Refused {
        /// The kind of refusal.
        code: v1::ErrorCode,
        /// Path of the field, or empty.
        field: String,
        /// What the VMM says.
        message: String,
    },
}

const PROTOCOLS: &str = "1";

/// A connection after both hellos.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    decoder: FrameDecoder<()>,
    hello: v1::Hello,
    peer_pid: Option<u32>,
    deadlines: Deadlines,
    next_id: u64,
}

impl Connection {
    /// Connects and exchanges hellos.
    pub(crate) async fn open(dir: &SocketDir, deadlines: Deadlines) -> Result<Self, ControlError> {
        timeout(deadlines.hello, Self::greet(dir, deadlines))
            .await
            .map_err(|_| ControlError::Late("say hello", deadlines.hello))?
    }

    async fn greet(dir: &SocketDir, deadlines: Deadlines) -> Result<Self, ControlError> {
        let stream = dir.connect().await.map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
                ControlError::NobodyListens
            }
            _ => ControlError::Io(error),
        })?;
        let peer = stream.peer_cred().map_err(ControlError::Io)?;
        let mut connection = Self {
            stream,
            decoder: FrameDecoder::new(),
            hello: v1::Hello::default(),
            peer_pid: peer.pid().and_then(|pid| u32::try_from(pid).ok()),
            deadlines,
            next_id: 1,
        };
        let first = connection.receive().await.map_err(|error| match error {
            // The socket was closed with this connection in its backlog.
            ControlError::Io(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                ControlError::NobodyListens
            }
            error => error,
        })?;
        let Body::Hello(hello) = first else {
            return Err(ControlError::OutOfTurn("another frame than hello"));
        };
        let Some(protocol) = common_version(hello.protocol_min, hello.protocol_max) else {
            return Err(ControlError::Version {
                program: hello.version,
                min: hello.protocol_min,
                max: hello.protocol_max,
            });
        };
        connection.hello = hello;
        if connection.hello.refusal.is_some() {
            return Ok(connection);
        }
        let ack = v1::HelloAck {
            protocol,
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        connection.send(Body::HelloAck(ack), &[]).await?;
        Ok(connection)
    }

    /// The process that listens on the socket, as this agent's pid namespace knows it: whoever
    /// called listen(2) last.
    pub(crate) fn peer_pid(&self) -> Option<u32> {
        self.peer_pid
    }

    /// A connection that was refused has the version of the VMM, and carries no request.
    fn expect_accepted(&self) -> Result<(), ControlError> {
        match self.hello.refusal.clone() {
            None => Ok(()),
            Some(error) if error.code() == v1::ErrorCode::Busy => {
                Err(ControlError::Busy(error.message))
            }
            Some(error) => Err(refused(error)),
        }
    }

    /// What the VMM said of itself when the connection was made.
    pub(crate) fn hello(&self) -> &v1::Hello {
        &self.hello
    }

    /// Asks for something and waits for the answer.
    pub(crate) async fn request(
        &mut self,
        kind: Kind,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<v1::MachineStatus, ControlError> {
        let limit = match kind {
            Kind::Configure(_) => self.deadlines.configure,
            _ => self.deadlines.request,
        };
        let response = timeout(limit, self.exchange(kind, descriptors))
            .await
            .map_err(|_| ControlError::Late("answer", limit))??;
        answer(response)
    }

    /// Asks a question and waits for the answer.
    pub(crate) async fn ask(&mut self, kind: Kind) -> Result<v1::Response, ControlError> {
        let limit = self.deadlines.request;
        let mut response = timeout(limit, self.exchange(kind, &[]))
            .await
            .map_err(|_| ControlError::Late("answer", limit))??;
        match response.error.take() {
            Some(error) => Err(refused(error)),
            None => Ok(response),
        }
    }

    /// Connects a socket to the console. Answers which byte of the guest's output it carries first.
    pub(crate) async fn attach_console(
        &mut self,
        attach: v1::AttachConsole,
        socket: BorrowedFd<'_>,
    ) -> Result<u64, ControlError> {
        let limit = self.deadlines.request;
        let response = timeout(limit, self.exchange(Kind::AttachConsole(attach), &[socket]))
            .await
            .map_err(|_| ControlError::Late("answer", limit))??;
        let offset = response.console_offset;
        answer(response).map(|_| offset)
    }

    async fn exchange(
        &mut self,
        kind: Kind,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<v1::Response, ControlError> {
        self.expect_accepted()?;
        let id = self.next_id;
        self.next_id += 1;
        let request = v1::Request {
            id,
            kind: Some(kind),
        };
        self.send(Body::Request(request), descriptors).await?;
        loop {
            match self.receive().await? {
                Body::Response(response) if response.id == id => return Ok(response),
                // Events may come in between; whoever listens for them does nothing else.
                Body::Event(_) => {}
                _ => return Err(ControlError::OutOfTurn("another frame than the response")),
            }
        }
    }

    /// Waits for the next event, for as long as it takes.
    pub(crate) async fn next_event(&mut self) -> Result<v1::Event, ControlError> {
        match self.receive().await? {
            Body::Event(event) => Ok(event),
            _ => Err(ControlError::OutOfTurn("another frame than an event")),
        }
    }

    async fn receive(&mut self) -> Result<Body, ControlError> {
        let mut buffer = [0; 4096];
        loop {
            if let Some((frame, _)) = self.decoder.next_frame()? {
                let body = frame.body.map(tamed);
                return body.ok_or(ControlError::OutOfTurn("an empty frame"));
            }
            // Descriptors that a VMM would send are dropped by the kernel: none is ever asked for.
            let count = self
                .stream
                .read(&mut buffer)
                .await
                .map_err(ControlError::Io)?;
            if count == 0 {
                return Err(ControlError::Closed);
            }
            self.decoder
                .push(buffer.get(..count).unwrap_or_default(), [])?;
        }
    }

    async fn send(
        &mut self,
        body: Body,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), ControlError> {
        let bytes = encode_frame(&Frame { body: Some(body) }, descriptors.len())?;
        let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&raw)];
        let messages = if raw.is_empty() { &[][..] } else { &rights[..] };
        let sent = self
            .stream
            .async_io(Interest::WRITABLE, || {
                let parts = [IoSlice::new(&bytes)];
                let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
                let fd = self.stream.as_raw_fd();
                Ok(sendmsg::<UnixAddr>(fd, &parts, messages, flags, None)?)
            })
            .await
            .map_err(ControlError::Io)?;
        let rest = bytes.get(sent..).unwrap_or_default();
        self.stream.write_all(rest).await.map_err(ControlError::Io)
    }
}

fn answer(response: v1::Response) -> Result<v1::MachineStatus, ControlError> {
    match response.error {
        Some(error) => Err(refused(error)),
        None => Ok(response.status.unwrap_or_default()),
    }
}

fn refused(error: v1::Error) -> ControlError {
    ControlError::Refused {
        code: error.code(),
        field: error.field,
        message: error.message,
    }
}
