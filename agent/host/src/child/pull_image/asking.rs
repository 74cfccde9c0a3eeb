//! Questions to the agent, one at a time, while downloads go on.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{sleep, timeout};

use super::error::PullError;
use super::messages::{Ask, BUSY};
use agent_confined::receive_one;

/// Until the agent answers: it connects to hosts meanwhile.
const PATIENCE: Duration = Duration::from_secs(300);
/// Longest line of the agent.
const MAX_LINE_BYTES: usize = 4096;
/// Between two questions for a file that another pull has.
const BUSY_INTERVAL: Duration = Duration::from_millis(200);

/// The process that started this one.
#[derive(Debug)]
pub(super) struct Agent {
    socket: UnixStream,
    /// Answers come in the order of the questions, so nobody asks before the last answer is there.
    turn: Mutex<()>,
}

impl Agent {
    /// Within a runtime.
    pub(super) fn new(socket: StdUnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket: UnixStream::from_std(socket)?,
            turn: Mutex::default(),
        })
    }

    /// Sends a message that has no answer.
    pub(super) async fn notify(&self, ask: &Ask) -> io::Result<()> {
        let turn = self.turn.lock().await;
        self.write(&turn, ask).await
    }

    /// The same, unless a question waits for its answer. Returns whether it was sent.
    pub(super) async fn try_notify(&self, ask: &Ask) -> io::Result<bool> {
        let Ok(turn) = self.turn.try_lock() else {
            return Ok(false);
        };
        self.write(&turn, ask).await.map(|()| true)
    }

    /// Asks for a descriptor.
    pub(super) async fn ask(&self, ask: &Ask) -> Result<OwnedFd, PullError> {
        let turn = self.turn.lock().await;
        let answered = timeout(PATIENCE, self.answer(&turn, ask)).await;
        let answered = answered.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        answered
            .map_err(PullError::io("the agent does not answer"))?
            .map_err(PullError::Refused)
    }

    /// The descriptor, or why there is none.
    async fn answer(
        &self,
        turn: &MutexGuard<'_, ()>,
        ask: &Ask,
    ) -> io::Result<Result<OwnedFd, String>> {
        self.write(turn, ask).await?;
        let received = self
            .socket
            .async_io(Interest::READABLE, || receive_one(&self.socket));
        match received.await? {
            Some(descriptor) => Ok(Ok(descriptor)),
            None => self.line().await.map(Err),
        }
    }

    async fn write(&self, _turn: &MutexGuard<'_, ()>, ask: &Ask) -> io::Result<()> {
        let mut line = serde_json::to_vec(ask)?;
        line.push(b'\n');
        let mut rest = &line[..];
        while !rest.is_empty() {
            let write = self
                .socket
                .async_io(Interest::WRITABLE, || self.socket.try_write(rest));
            let count = write.await?;
            rest = rest.get(count..).unwrap_or_default();
        }
        Ok(())
    }

    /// The rest of a refusal. Answers come one at a time, so nothing comes after the end of the line.
    async fn line(&self) -> io::Result<String> {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') && line.len() < MAX_LINE_BYTES {
            let mut buffer = [0; 256];
            let read = self
                .socket
                .async_io(Interest::READABLE, || self.socket.try_read(&mut buffer));
            let count = read.await?;
            match buffer.get(..count) {
                None | Some([]) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(read) => line.extend_from_slice(read),
            }
        }
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    /// Whether a manifest's image is wanted: if not, nothing comes back.
    pub(super) async fn wants(&self, digest: &str) -> Result<(), PullError> {
        let ask = Ask::Manifest {
            digest: digest.to_owned(),
        };
        match self.ask(&ask).await {
            Err(PullError::Refused(word)) if word == "wanted" => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(PullError::Refused("a descriptor came unasked".to_owned())),
        }
    }

    /// A blob's file as the agent hands it over, once no other pull has it. Whoever has one never waits for another
    /// with it at hand, so no two pulls wait for each other.
    pub(super) async fn file(
        &self,
        digest: &str,
        bytes: u64,
        beside: impl Fn() -> u64,
    ) -> Result<File, PullError> {
        loop {
            let ask = Ask::Blob {
                digest: digest.to_owned(),
                bytes,
                beside: beside(),
            };
            match self.ask(&ask).await {
                Err(PullError::Refused(word)) if word == BUSY => sleep(BUSY_INTERVAL).await,
                answered => return answered.map(File::from),
            }
        }
    }
}
