//! The tests' end of the channel to `node-agent`.

use std::collections::HashMap;
use std::io::BufReader;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::session::Session;
use crate::wire::{Frame, Kind, Request};

type Sessions = Arc<Mutex<HashMap<u32, Sender<Frame>>>>;

/// Between two words to a machine that is kept awake.
const WAKE_INTERVAL: Duration = Duration::from_millis(100);

/// A machine that has taken no byte for so long has stopped: its processors, which are emulated, may wait for each other for
/// ever, and whoever writes to it would wait with them.
const DEAF: Duration = Duration::from_secs(120);

/// An open channel. A thread hands incoming frames to their sessions; when the node is gone all
/// sessions end with an error.
#[derive(Debug)]
pub struct Channel {
    writer: Arc<Mutex<UnixStream>>,
    sessions: Sessions,
    next: AtomicU32,
}

impl Channel {
    /// Connects to QEMU's socket and waits for the agent's first word. `alive` is asked meanwhile
    /// whether waiting still makes sense.
    pub(crate) fn connect(
        socket: &Path,
        limit: Duration,
        alive: &mut dyn FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let until = Instant::now() + limit;
        let stream = loop {
            match UnixStream::connect(socket) {
                Ok(stream) => break stream,
                Err(error) => {
                    alive()?;
                    anyhow::ensure!(Instant::now() < until, "{}: {error}", socket.display());
                    // QEMU signals to nobody that it listens on the socket.
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        };
        Self::over(
            stream,
            until.saturating_duration_since(Instant::now()),
            alive,
        )
    }

    /// Waits for the agent's first word on a stream that leads to it.
    pub(crate) fn over(
        stream: UnixStream,
        limit: Duration,
        alive: &mut dyn FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let until = Instant::now() + limit;
        stream.set_write_timeout(Some(DEAF))?;
        let sessions: Sessions = Arc::default();
        let (hello, greeted) = channel();
        let reader = BufReader::with_capacity(64 << 10, stream.try_clone()?);
        let routes = Arc::clone(&sessions);
        std::thread::spawn(move || route(reader, &routes, &hello));
        wait_for_hello(&greeted, until, alive)?;
        Ok(Self {
            writer: Arc::new(Mutex::new(stream)),
            sessions,
            next: AtomicU32::new(1),
        })
    }

    /// Says something to the other side ten times a second, as long as the channel is there.
    ///
    /// Debian's QEMU loses interrupts of a processor that runs nested guests: `helper_vmrun` changes
    /// `interrupt_request` without the lock that devices raise interrupts under. A lost timer interrupt
    /// stands still everything in the node, often for a minute, until any other interrupt has the processor
    /// look at its APIC. This is that other interrupt. The mended QEMU loses none, and it costs nothing.
    pub(crate) fn keep_awake(&self) {
        let writer = Arc::downgrade(&self.writer);
        let ping = Frame::new(Kind::Ping, 0, Vec::new());
        std::thread::spawn(move || {
            while let Some(writer) = writer.upgrade() {
                let mut stream = writer.lock().unwrap_or_else(PoisonError::into_inner);
                if ping.write(&mut *stream).is_err() {
                    return;
                }
                drop(stream);
                drop(writer);
                // The period of the pings.
                std::thread::sleep(WAKE_INTERVAL);
            }
        });
    }

    /// Ends the channel: the other side reads that nothing more comes, and sessions end with an error.
    pub(crate) fn close(&self) {
        let stream = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        // Fails when the other side has closed it.
        stream.shutdown(Shutdown::Both).ok();
    }

    /// Starts a program; `timeout` is kept by the other side.
    pub(super) fn exec(
        &self,
        argv: &[&str],
        terminal: bool,
        timeout: Option<Duration>,
    ) -> anyhow::Result<Session> {
        let timeout_ms = timeout
            .map(|timeout| u64::try_from(timeout.as_millis()))
            .transpose()?;
        self.open(&Request::Exec {
            argv: argv.iter().map(|&word| word.to_owned()).collect(),
            env: Vec::new(),
            timeout_ms,
            terminal,
        })
    }

    /// Opens a session.
    pub(super) fn open(&self, request: &Request) -> anyhow::Result<Session> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (inbox, frames) = channel();
        self.sessions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(number, inbox);
        let session = Session::new(number, Arc::clone(&self.writer), frames);
        session
            .send(&Frame::json(Kind::Start, number, request)?)
            .context("the node is gone")?;
        Ok(session)
    }
}

fn wait_for_hello(
    greeted: &Receiver<()>,
    until: Instant,
    alive: &mut dyn FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    loop {
        match greeted.recv_timeout(Duration::from_millis(100)) {
            Ok(()) => return Ok(()),
            Err(RecvTimeoutError::Disconnected) => {
                alive()?;
                anyhow::bail!("the other end closed the channel");
            }
            Err(RecvTimeoutError::Timeout) => {
                alive()?;
                anyhow::ensure!(
                    Instant::now() < until,
                    "the node's agent did not answer in time"
                );
            }
        }
    }
}

fn route(mut reader: BufReader<UnixStream>, sessions: &Sessions, hello: &Sender<()>) {
    while let Ok(frame) = Frame::read(&mut reader) {
        if frame.kind == Kind::Hello {
            // Later greetings (the agent was restarted) find nobody waiting, which is fine.
            hello.send(()).ok();
            continue;
        }
        let number = frame.session;
        let ended = frame.kind == Kind::End;
        let mut sessions = sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let unwanted = sessions
            .get(&number)
            .is_some_and(|inbox| inbox.send(frame).is_err());
        if ended || unwanted {
            sessions.remove(&number);
        }
    }
    sessions
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clear();
}
