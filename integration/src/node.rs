//! A node in a box: boots, runs commands, loses its power, starts again from the same disk.

mod channel;
mod qemu;
mod session;
mod slot;
mod spec;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::wire::{Outcome, Request};
use channel::Channel;
pub use session::{Output, Session};
pub use spec::{Console, Flavour, NodeSpec};

use crate::process::Bound;

/// How long a node may take until its agent answers; ten times what was measured.
const BOOT_TIMEOUT: Duration = Duration::from_secs(240);

/// How long one command may run unless the caller says otherwise.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);

/// A running node. Dropping it cuts its power; when the test is failing, its log is printed first.
#[derive(Debug)]
pub struct Node {
    spec: NodeSpec,
    slot: slot::Slot,
    machine: Option<Running>,
    /// From the start of QEMU until the node was ready for work, of the latest start.
    pub boot_time: Duration,
}

#[derive(Debug)]
struct Running {
    qemu: Bound,
    channel: Channel,
}

impl Node {
    /// Boots a new node and returns once it is ready. Waits while two others run.
    ///
    /// # Errors
    /// When something it needs is missing or the node does not come up.
    pub fn boot(spec: NodeSpec) -> anyhow::Result<Self> {
        crate::tools::ensure(crate::tools::NODE)?;
        let slot = slot::Slot::take()?;
        let mut node = Self {
            spec,
            slot,
            machine: None,
            boot_time: Duration::ZERO,
        };
        qemu::prepare(&node.spec, node.slot.directory())?;
        node.start()?;
        Ok(node)
    }

    fn start(&mut self) -> anyhow::Result<()> {
        let started = Instant::now();
        let qemu = qemu::start(&self.spec, self.slot.directory())?;
        let socket = qemu::agent_socket(self.slot.directory());
        let mut starting = Some(qemu);
        let channel = Channel::connect(&socket, BOOT_TIMEOUT, &mut || match starting
            .as_mut()
            .map(Bound::ended)
            .transpose()?
            .flatten()
        {
            Some(status) => anyhow::bail!("QEMU ended with {status}"),
            None => Ok(()),
        });
        let channel =
            channel.with_context(|| format!("the node did not start; its log:\n{}", self.log()))?;
        let qemu = starting.take().context("QEMU was taken twice")?;
        self.machine = Some(Running { qemu, channel });
        if self.spec.flavour == Flavour::Systemd {
            // "degraded" is ready too; a test looks at the units it cares for.
            self.exec(&["systemctl", "is-system-running", "--wait"])?
                .wait(BOOT_TIMEOUT)?;
        }
        self.boot_time = started.elapsed();
        Ok(())
    }

    fn channel(&self) -> anyhow::Result<&Channel> {
        Ok(&self
            .machine
            .as_ref()
            .context("the node has no power")?
            .channel)
    }

    /// Starts a program in the node, without a terminal.
    ///
    /// # Errors
    /// When the node is gone. A program that can not be started shows as the session's outcome.
    pub fn exec(&self, argv: &[&str]) -> anyhow::Result<Session> {
        self.exec_with(argv, false, None)
    }

    /// Starts a program on a terminal of its own; its output and errors come as one.
    ///
    /// # Errors
    /// As [`Self::exec`].
    pub fn exec_in_terminal(&self, argv: &[&str]) -> anyhow::Result<Session> {
        self.exec_with(argv, true, None)
    }

    fn exec_with(
        &self,
        argv: &[&str],
        terminal: bool,
        timeout: Option<Duration>,
    ) -> anyhow::Result<Session> {
        let timeout_ms = timeout
            .map(|timeout| u64::try_from(timeout.as_millis()))
            .transpose()?;
        self.channel()?.open(&Request::Exec {
            argv: argv.iter().map(|&word| word.to_owned()).collect(),
            env: Vec::new(),
            timeout_ms,
            terminal,
        })
    }

    /// Runs a program to its end, at most [`COMMAND_TIMEOUT`].
    ///
    /// # Errors
    /// When the node is gone or the program can not be started or takes too long; an exit code is no
    /// error here.
    pub fn run(&self, argv: &[&str]) -> anyhow::Result<Output> {
        self.run_for(argv, COMMAND_TIMEOUT)
    }

    /// Runs a program to its end, at most `limit`.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_for(&self, argv: &[&str], limit: Duration) -> anyhow::Result<Output> {
        let mut session = self.exec_with(argv, false, Some(limit))?;
        session.close_input()?;
        session
            .wait(limit + Duration::from_secs(20))
            .with_context(|| format!("in the node: {argv:?}"))
    }

    /// Runs a shell script and gives its standard output.
    ///
    /// # Errors
    /// When it ends with anything but 0; the error holds its output.
    pub fn sh(&self, script: &str) -> anyhow::Result<String> {
        let output = self.run(&["sh", "-c", script])?;
        anyhow::ensure!(output.code == Some(0), "in the node: {script}\n{output}");
        Ok(output.stdout)
    }

    /// Runs a shell script again and again until it succeeds, and gives its standard output.
    ///
    /// # Errors
    /// When it still fails after `limit`; the error holds its last output.
    pub fn wait_for(&self, script: &str, limit: Duration) -> anyhow::Result<String> {
        let until = Instant::now() + limit;
        loop {
            let output = self.run(&["sh", "-c", script])?;
            if output.code == Some(0) {
                return Ok(output.stdout);
            }
            anyhow::ensure!(
                Instant::now() < until,
                "still not so after {limit:?}: {script}\n{output}"
            );
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    /// Writes a file in the node.
    ///
    /// # Errors
    /// When the node is gone or refuses.
    pub fn put(&self, path: &str, mode: u32, content: &[u8]) -> anyhow::Result<()> {
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

    /// Reads a file of the node.
    ///
    /// # Errors
    /// When the node is gone or has no such file.
    pub fn get(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        let mut session = self.channel()?.open(&Request::Get {
            path: path.to_owned(),
        })?;
        session
            .finish(COMMAND_TIMEOUT)
            .with_context(|| format!("reading {path} in the node"))
    }

    /// Takes the power away, as a pulled plug does: nothing in the node gets to flush anything.
    pub fn power_cut(&mut self) {
        if let Some(mut running) = self.machine.take() {
            running.qemu.kill();
        }
    }

    /// Cuts the power if the node still has it, and starts the node from the same disk.
    ///
    /// # Errors
    /// When it does not come up again.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        self.power_cut();
        self.start()
    }

    /// Waits until QEMU ends by itself, as after `poweroff` or when the user left the console.
    ///
    /// # Errors
    /// When QEMU can not be waited for.
    pub fn wait_for_power_off(&mut self) -> anyhow::Result<()> {
        if let Some(mut running) = self.machine.take() {
            running.qemu.child().wait()?;
        }
        Ok(())
    }

    /// What the node printed on its serial port since its first start.
    #[must_use]
    pub fn log(&self) -> String {
        let path = qemu::console_log(self.slot.directory());
        fs::read(&path).map_or_else(
            |error| format!("{}: {error}", path.display()),
            |bytes| String::from_utf8_lossy(&bytes).into_owned(),
        )
    }

    /// The directory of the node's own files, such as its disk.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.slot.directory().to_path_buf()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            println!("---- the node's log, its last 200 lines ----");
            for line in &lines[lines.len().saturating_sub(200)..] {
                println!("{line}");
            }
            println!("---- end of the node's log ----");
        }
        self.power_cut();
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
