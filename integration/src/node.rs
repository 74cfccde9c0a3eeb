//! A node in a box: boots, runs commands, loses its power, starts again from the same disk.

mod network;
mod qemu;
mod slot;
mod spec;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::commands::{Channel, Commands};
pub use network::Network;
pub use spec::{Console, Emulation, Flavour, NodeSpec};

use crate::process::Bound;
use crate::traced;

/// How long a node may take until its agent answers; ten times what was measured.
const BOOT_TIMEOUT: Duration = Duration::from_secs(240);

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
        Self::boot_in(slot::Slot::take()?, spec)
    }

    /// Boots a node beside this one, whose turn it shares: for tests of several nodes. Each has a number of its
    /// own.
    ///
    /// # Errors
    /// As [`Self::boot`].
    pub fn boot_beside(&self, number: u8, spec: NodeSpec) -> anyhow::Result<Self> {
        Self::boot_in(self.slot.beside(number)?, spec)
    }

    fn boot_in(slot: slot::Slot, spec: NodeSpec) -> anyhow::Result<Self> {
        crate::tools::ensure(crate::tools::NODE)?;
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
        let mut qemu = qemu::start(&self.spec, self.slot.directory())?;
        let socket = qemu::agent_socket(self.slot.directory());
        let channel = Channel::connect(&socket, BOOT_TIMEOUT, &mut || match qemu.ended()? {
            Some(status) => anyhow::bail!("QEMU ended with {status}"),
            None => Ok(()),
        });
        let channel = channel.with_context(|| {
            let qemu_says = read(&qemu::messages(self.slot.directory()));
            let log = self.log();
            format!("the node did not start; QEMU says:\n{qemu_says}\nits log:\n{log}")
        })?;
        // A counted node has one thread for everything, and its count must not depend on this machine.
        if self.spec.emulation == Emulation::Parallel {
            channel.keep_awake();
        }
        self.machine = Some(Running { qemu, channel });
        if self.spec.flavour == Flavour::Systemd {
            // "degraded" is ready too; a test looks at the units it cares for.
            self.exec(&["systemctl", "is-system-running", "--wait"])?
                .wait(BOOT_TIMEOUT)?;
        }
        self.boot_time = started.elapsed();
        traced::begin(self)
    }

    /// Takes the power away, as a pulled plug does: nothing in the node gets to flush anything.
    pub fn power_cut(&mut self) {
        if self.machine.is_some()
            && let Err(error) = traced::collect(self)
        {
            eprintln!("the node's trace is lost: {error:#}");
        }
        if let Some(mut running) = self.machine.take() {
            running.qemu.kill();
            if has_stopped(&self.log()) {
                println!("{STOPPED}");
            }
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

    /// Waits until QEMU ends by itself, as after `poweroff`, `reboot` or when the user left the console; at most
    /// `limit`, if there is one.
    ///
    /// # Errors
    /// When it goes on, or cannot be waited for.
    pub fn wait_for_power_off(&mut self, limit: Option<Duration>) -> anyhow::Result<()> {
        let Some(mut running) = self.machine.take() else {
            return Ok(());
        };
        let begun = Instant::now();
        while running.qemu.ended()?.is_none() {
            anyhow::ensure!(
                limit.is_none_or(|limit| begun.elapsed() < limit),
                "the node still has power; its log:\n{}",
                self.log()
            );
            // `Child` has no wait with a limit.
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// What the node printed on its serial port since its first start.
    #[must_use]
    pub fn log(&self) -> String {
        read(&qemu::console_log(self.slot.directory()))
    }

    /// How long its CPUs have been at work, as this machine counts it.
    ///
    /// # Errors
    /// When it has no power.
    pub fn cpu_time(&self) -> anyhow::Result<Duration> {
        let machine = self.machine.as_ref();
        machine.context("the node has no power")?.qemu.cpu_time()
    }

    /// The directory of the node's own files, such as its disk.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.slot.directory().to_path_buf()
    }
}

/// A text for people, or why there is none.
fn read(path: &Path) -> String {
    fs::read(path).map_or_else(
        |error| format!("{}: {error}", path.display()),
        |bytes| String::from_utf8_lossy(&bytes).into_owned(),
    )
}

impl Commands for Node {
    fn channel(&self) -> anyhow::Result<&Channel> {
        Ok(&self
            .machine
            .as_ref()
            .context("the node has no power")?
            .channel)
    }
}

/// Printed at the end of a node whose emulated processors waited for each other for ever.
pub const STOPPED: &str = "the emulated processors of a node have stopped";

/// Whether the node's kernel found its processors stopped, as those of an emulator sometimes do. What brings it about is not
/// known: a program in the node may make it likelier, and none should be able to.
fn has_stopped(log: &str) -> bool {
    log.contains("watchdog: BUG: soft lockup - CPU#")
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
