//! One program that runs in a node, or one file on its way.

mod shell;

use std::fmt;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::wire::{Frame, Kind, MAX_PAYLOAD_BYTES, Outcome};

/// What a program left behind.
#[derive(Debug, Clone)]
pub struct Output {
    /// Its exit code, or nothing when a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// What it complained about.
    pub stderr: String,
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(code) => writeln!(f, "exit code {code}")?,
            None => writeln!(f, "ended by a signal")?,
        }
        write!(f, "{}{}", self.stdout, self.stderr)
    }
}

/// A session with the node's agent. Dropping it does not end the program.
#[derive(Debug)]
pub struct Session {
    number: u32,
    writer: Arc<Mutex<UnixStream>>,
    frames: Receiver<Frame>,
    output: Vec<u8>,
    errors: Vec<u8>,
    /// How much of `output` [`Self::read_until`] has gone past.
    read: usize,
    outcome: Option<Outcome>,
}

impl Session {
    pub(super) fn new(
        number: u32,
        writer: Arc<Mutex<UnixStream>>,
        frames: Receiver<Frame>,
    ) -> Self {
        Self {
            number,
            writer,
            frames,
            output: Vec::new(),
            errors: Vec::new(),
            read: 0,
            outcome: None,
        }
    }

    pub(super) fn send(&self, frame: &Frame) -> std::io::Result<()> {
        frame.write(&mut *self.writer.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes to the program's standard input.
    ///
    /// # Errors
    /// When the node is gone.
    pub fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        for chunk in bytes.chunks(MAX_PAYLOAD_BYTES) {
            self.send(&Frame::new(Kind::Input, self.number, chunk.to_vec()))
                .context("the node is gone")?;
        }
        Ok(())
    }

    /// Ends the program's standard input.
    ///
    /// # Errors
    /// When the node is gone.
    pub fn close_input(&mut self) -> anyhow::Result<()> {
        self.send(&Frame::new(Kind::InputEnd, self.number, Vec::new()))
            .context("the node is gone")
    }

    /// Kills the program and all of its process group.
    ///
    /// # Errors
    /// When the node is gone.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.send(&Frame::new(Kind::Kill, self.number, Vec::new()))
            .context("the node is gone")
    }

    /// Takes in the next frame; false when `until` has passed.
    fn advance(&mut self, until: Instant) -> anyhow::Result<bool> {
        let Some(left) = until.checked_duration_since(Instant::now()) else {
            return Ok(false);
        };
        let frame = match self.frames.recv_timeout(left) {
            Ok(frame) => frame,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => return Ok(false),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
                anyhow::bail!("the node is gone")
            }
        };
        match frame.kind {
            Kind::Output => self.output.extend_from_slice(&frame.payload),
            Kind::Errors => self.errors.extend_from_slice(&frame.payload),
            Kind::End => self.outcome = Some(serde_json::from_slice(&frame.payload)?),
            _ => {}
        }
        Ok(true)
    }

    /// Waits until the program's output, from where the last call stopped, holds `text`, and gives
    /// that output up to and with `text`.
    ///
    /// # Errors
    /// When `limit` passes or the program ends before; the error holds the output.
    pub fn read_until(&mut self, text: &str, limit: Duration) -> anyhow::Result<String> {
        self.follow_until(text, limit, &mut std::io::sink())
    }

    /// As [`Self::read_until`]; what comes in is also written to `sink` at once.
    ///
    /// # Errors
    /// As [`Self::read_until`], and when `sink` fails.
    pub fn follow_until(
        &mut self,
        text: &str,
        limit: Duration,
        sink: &mut dyn Write,
    ) -> anyhow::Result<String> {
        let until = Instant::now() + limit;
        let mut written = self.read;
        loop {
            let unread = &self.output[self.read..];
            let found = unread
                .windows(text.len())
                .position(|window| window == text.as_bytes());
            let end = found.map_or(self.output.len(), |at| self.read + at + text.len());
            if end > written {
                sink.write_all(&self.output[written..end])?;
                sink.flush()?;
                written = end;
            }
            if found.is_some() {
                let passed = String::from_utf8_lossy(&self.output[self.read..end]).into_owned();
                self.read = end;
                return Ok(passed);
            }
            let shown = || {
                let unread = String::from_utf8_lossy(&self.output[self.read..]);
                format!("{unread}\n{}", String::from_utf8_lossy(&self.errors))
            };
            if let Some(outcome) = &self.outcome {
                anyhow::bail!("{outcome:?} before {text:?} was printed:\n{}", shown());
            }
            anyhow::ensure!(
                Instant::now() < until,
                "{text:?} was not printed within {limit:?}:\n{}",
                shown()
            );
            // Looks at the time again above.
            self.advance(until)?;
        }
    }

    /// The next line of the program's output with its end, or `None` when nothing more comes within
    /// `silence`.
    ///
    /// # Errors
    /// When the program ends before; the error holds what it complained about.
    pub fn next_line(&mut self, silence: Duration) -> anyhow::Result<Option<String>> {
        loop {
            let unread = &self.output[self.read..];
            if let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
                let line = String::from_utf8_lossy(&unread[..=end]).into_owned();
                self.read += end + 1;
                return Ok(Some(line));
            }
            if let Some(outcome) = &self.outcome {
                let complaint = String::from_utf8_lossy(&self.errors);
                anyhow::bail!("{outcome:?} before another line was printed:\n{complaint}");
            }
            if !self.advance(Instant::now() + silence)? {
                return Ok(None);
            }
        }
    }

    /// Everything printed so far, also what was read before.
    #[must_use]
    pub fn printed(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }

    /// Waits for the program's end.
    ///
    /// # Errors
    /// When `limit` passes, the node is gone, or the program could not be run.
    pub fn wait(mut self, limit: Duration) -> anyhow::Result<Output> {
        let output = self.finish(limit)?;
        let code = match self.outcome {
            Some(Outcome::Exited(code)) => Some(code),
            _ => None,
        };
        Ok(Output {
            code,
            stdout: String::from_utf8_lossy(&output).into_owned(),
            stderr: String::from_utf8_lossy(&self.errors).into_owned(),
        })
    }

    /// As [`Self::wait`]; what the program prints on standard output is also written to `sink` as it comes.
    ///
    /// # Errors
    /// As [`Self::wait`], and when `sink` fails.
    pub fn follow(mut self, limit: Duration, sink: &mut dyn Write) -> anyhow::Result<Output> {
        let until = Instant::now() + limit;
        let mut written = 0;
        loop {
            sink.write_all(self.output.get(written..).unwrap_or_default())?;
            sink.flush()?;
            written = self.output.len();
            if self.outcome.is_some() {
                return self.wait(Duration::ZERO);
            }
            anyhow::ensure!(
                self.advance(until)?,
                "not done within {limit:?}; printed so far:\n{}",
                self.printed()
            );
        }
    }

    /// Waits for the session's end and gives the raw output.
    pub(super) fn finish(&mut self, limit: Duration) -> anyhow::Result<Vec<u8>> {
        let until = Instant::now() + limit;
        while self.outcome.is_none() {
            anyhow::ensure!(
                self.advance(until)?,
                "not done within {limit:?}; printed so far:\n{}",
                String::from_utf8_lossy(&self.output)
            );
        }
        if let Some(outcome) = &self.outcome {
            refuse(outcome)?;
        }
        Ok(std::mem::take(&mut self.output))
    }
}

/// Turns what is not a plain end of a program or of a file into an error.
fn refuse(outcome: &Outcome) -> anyhow::Result<()> {
    match outcome {
        Outcome::Exited(_) | Outcome::Signalled(_) | Outcome::Done => Ok(()),
        Outcome::TimedOut => anyhow::bail!("took too long and was killed"),
        Outcome::Failed(why) => anyhow::bail!("{why}"),
    }
}
