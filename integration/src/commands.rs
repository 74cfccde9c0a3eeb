//! Commands, terminals and files on a machine under test, be it a node in a box or a corner of this
//! machine.

mod channel;
mod session;

use std::time::{Duration, Instant};

use anyhow::Context;

use crate::wire::Request;
pub use channel::Channel;
pub use session::{Output, Session};

/// How long one command may run unless the caller says otherwise.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);

/// A machine is looked at again after so long at least, and at most.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(300);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(3);

/// What can be done on a machine with a [`Channel`] to it.
pub trait Commands {
    /// The way to the machine's `node-agent`.
    ///
    /// # Errors
    /// When the machine has no power.
    fn channel(&self) -> anyhow::Result<&Channel>;

    /// Starts a program, without a terminal.
    ///
    /// # Errors
    /// When the machine is gone. A program that cannot be started shows as the session's outcome.
    fn exec(&self, argv: &[&str]) -> anyhow::Result<Session> {
        self.channel()?.exec(argv, false, None)
    }

    /// Starts a program on a terminal of its own; its output and errors come as one.
    ///
    /// # Errors
    /// As [`Self::exec`].
    fn exec_in_terminal(&self, argv: &[&str]) -> anyhow::Result<Session> {
        self.channel()?.exec(argv, true, None)
    }

    /// Runs a program to its end, at most [`COMMAND_TIMEOUT`].
    ///
    /// # Errors
    /// When the machine is gone or the program cannot be started or takes too long; an exit code is
    /// no error here.
    fn run(&self, argv: &[&str]) -> anyhow::Result<Output> {
        self.run_for(argv, COMMAND_TIMEOUT)
    }

    /// Runs a program to its end, at most `limit`.
    ///
    /// # Errors
    /// As [`Self::run`].
    fn run_for(&self, argv: &[&str], limit: Duration) -> anyhow::Result<Output> {
        let mut session = self.channel()?.exec(argv, false, Some(limit))?;
        session.close_input()?;
        session
            .wait(limit + Duration::from_secs(20))
            .with_context(|| format!("in the node: {argv:?}"))
    }

    /// Runs a shell script and gives its standard output.
    ///
    /// # Errors
    /// When it ends with anything but 0; the error holds its output.
    fn sh(&self, script: &str) -> anyhow::Result<String> {
        let output = self.run(&["sh", "-c", script])?;
        anyhow::ensure!(output.code == Some(0), "in the node: {script}\n{output}");
        Ok(output.stdout)
    }

    /// Runs a shell script again and again until it succeeds, and gives its standard output.
    ///
    /// # Errors
    /// When it still fails after `limit`; the error holds its last output.
    fn wait_for(&self, script: &str, limit: Duration) -> anyhow::Result<String> {
        let until = Instant::now() + limit;
        loop {
            let begun = Instant::now();
            let output = self.run(&["sh", "-c", script])?;
            if output.code == Some(0) {
                return Ok(output.stdout);
            }
            anyhow::ensure!(
                Instant::now() < until,
                "still not so after {limit:?}: {script}\n{output}"
            );
            // What is waited for has most of a node's one processor, which runs a program in half a second.
            std::thread::sleep((begun.elapsed() * 2).clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL));
        }
    }

    /// Writes a file; missing directories are made.
    ///
    /// # Errors
    /// When the machine is gone or refuses.
    fn put(&self, path: &str, mode: u32, content: &[u8]) -> anyhow::Result<()> {
        let mut session = self.channel()?.open(&Request::Put {
            path: path.to_owned(),
            mode,
        })?;
        session.write(content)?;
        session.close_input()?;
        session
            .finish(COMMAND_TIMEOUT)
            .with_context(|| format!("writing {path} in the node"))
            .map(drop)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When the machine is gone or has no such file.
    fn get(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        let mut session = self.channel()?.open(&Request::Get {
            path: path.to_owned(),
        })?;
        session
            .finish(COMMAND_TIMEOUT)
            .with_context(|| format!("reading {path} in the node"))
    }
}
