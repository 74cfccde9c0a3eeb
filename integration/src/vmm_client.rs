//! A VMM started by hand, and the blocking client that plays its agent.
//!
//! Used by tests of `kvmlet-vmm` alone and by benchmarks that want no agent in between.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use prost::Message;
use proto_vmm::v1::{
    Event, ExitRecord, Frame, Hello, HelloAck, Request, Response, frame::Body, request::Kind,
};
use vmm_sys::frame::{receive_frame, send_frame};

use crate::{artifacts, traced};

/// No answer of a VMM takes this long.
const PATIENCE: Duration = Duration::from_secs(20);

/// A `kvmlet-vmm` that was started by hand. Dropping it kills it.
#[derive(Debug)]
pub struct VmmProcess {
    process: Child,
    directory: tempfile::TempDir,
}

impl VmmProcess {
    /// Starts the built program with a control socket of its own and nothing else.
    ///
    /// # Errors
    /// When the program was not built or cannot be started.
    pub fn start() -> anyhow::Result<Self> {
        Self::start_program(&artifacts::program("kvmlet-vmm")?)
    }

    /// As [`Self::start`], with the program at `path`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_program(path: &Path) -> anyhow::Result<Self> {
        Self::start_as(path, |_command| {})
    }

    /// As [`Self::start_program`], with `change` made to how it is started.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_as(path: &Path, change: impl FnOnce(&mut Command)) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let listener = UnixListener::bind(directory.path().join("control.sock"))?;
        let log = File::create(directory.path().join("log"))?;
        // The child inherits the socket under the number that it has here.
        fcntl(&listener, FcntlArg::F_SETFD(FdFlag::empty()))?;
        let mut command = traced::command(path);
        command
            .arg("--control-fd")
            .arg(listener.as_raw_fd().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        change(&mut command);
        let process = command
            .spawn()
            .with_context(|| path.display().to_string())?;
        Ok(Self { process, directory })
    }

    /// Where the control socket is.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("control.sock")
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// What it wrote to its log so far.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn log(&self) -> anyhow::Result<String> {
        Ok(std::fs::read_to_string(self.directory.path().join("log"))?)
    }

    /// Connects as an agent would and completes the handshake.
    ///
    /// # Errors
    /// When the VMM refuses or does not speak our version.
    pub fn connect(&self) -> anyhow::Result<VmmClient> {
        VmmClient::connect(&self.socket())
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it does not come.
    pub fn wait(&mut self) -> anyhow::Result<ExitStatus> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.process.try_wait()? {
                return Ok(status);
            }
            anyhow::ensure!(
                Instant::now() < deadline,
                "the VMM did not end: {}",
                self.log()?
            );
            // `Child` has no wait with a limit.
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for VmmProcess {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// A connection to a VMM, after the handshake.
#[derive(Debug)]
pub struct VmmClient {
    socket: UnixStream,
    hello: Hello,
    next_id: u64,
    events: VecDeque<Event>,
}

impl VmmClient {
    /// Connects to the control socket at `path`.
    ///
    /// # Errors
    /// When the VMM refuses or does not speak our version.
    pub fn connect(path: &Path) -> anyhow::Result<Self> {
        Self::over(UnixStream::connect(path)?)
    }

    /// The handshake over a connected socket.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn over(socket: UnixStream) -> anyhow::Result<Self> {
        socket.set_read_timeout(Some(PATIENCE))?;
        let Some(Body::Hello(hello)) = receive(&socket)? else {
            anyhow::bail!("the VMM did not say hello");
        };
        let protocol = proto_vmm::common_version(hello.protocol_min, hello.protocol_max)
            .context("no version in common")?;
        let ack = HelloAck {
            protocol,
            agent_version: "integration".to_owned(),
        };
        send(&socket, Body::HelloAck(ack), &[])?;
        Ok(Self {
            socket,
            hello,
            next_id: 1,
            events: VecDeque::new(),
        })
    }

    /// What the VMM said first.
    #[must_use]
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Asks, and waits for the answer; events that come in between are kept.
    ///
    /// # Errors
    /// When the connection fails. A refusal is an answer.
    pub fn request(
        &mut self,
        kind: Kind,
        descriptors: &[BorrowedFd<'_>],
    ) -> anyhow::Result<Response> {
        let id = self.next_id;
        self.next_id += 1;
        let request = Request {
            id,
            kind: Some(kind),
        };
        send(&self.socket, Body::Request(request), descriptors)?;
        loop {
            match receive(&self.socket)? {
                Some(Body::Response(response)) if response.id == id => return Ok(response),
                Some(Body::Event(event)) => self.events.push_back(event),
                other => anyhow::bail!("expected the answer to request {id}, got {other:?}"),
            }
        }
    }

    /// As [`Self::request`], for requests that must be granted.
    ///
    /// # Errors
    /// When it is refused as well.
    pub fn must(&mut self, kind: Kind) -> anyhow::Result<Response> {
        let response = self.request(kind, &[])?;
        match response.error {
            None => Ok(response),
            Some(error) => anyhow::bail!("refused: {error:?}"),
        }
    }

    /// Whether an event came with an answer, and [`Self::next_event`] does not wait.
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// The next event; waits for it.
    ///
    /// # Errors
    /// When no event comes before the timeout.
    pub fn next_event(&mut self) -> anyhow::Result<Event> {
        if let Some(event) = self.events.pop_front() {
            return Ok(event);
        }
        match receive(&self.socket)? {
            Some(Body::Event(event)) => Ok(event),
            other => anyhow::bail!("expected an event, got {other:?}"),
        }
    }

    /// Waits for the event of the end.
    ///
    /// # Errors
    /// When it does not come.
    pub fn wait_for_exit(&mut self) -> anyhow::Result<ExitRecord> {
        loop {
            let event = self.next_event()?;
            if let Some(exit) = event.status.and_then(|status| status.exit) {
                return Ok(exit);
            }
        }
    }

    /// The socket, for tests that misbehave.
    #[must_use]
    pub fn socket(&self) -> &UnixStream {
        &self.socket
    }
}

impl AsFd for VmmClient {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn send(socket: &UnixStream, body: Body, descriptors: &[BorrowedFd<'_>]) -> anyhow::Result<()> {
    let frame = Frame { body: Some(body) };
    Ok(send_frame(socket, &frame.encode_to_vec(), descriptors)?)
}

fn receive(socket: &UnixStream) -> anyhow::Result<Option<Body>> {
    let frame = receive_frame(socket)?.context("the VMM closed the connection")?;
    Ok(Frame::decode(frame.body.as_slice())?.body)
}
