//! Load that `testguest` puts on a disk of `kvmlet-vmm`, on this machine's own KVM.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::event_count::{EMULATED, EXITS, EventCount, SYSTEM_CALLS, USER_EXITS};
use crate::testguest::{self, Results};
use crate::{artifacts, event_count};

/// A guest that is not done so long after its load was to end has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// In it the host begins to count.
const PAUSE_MS: u32 = 200;

/// How the guest learns that requests are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learning {
    /// It looks all the time.
    Polls,
    /// It sleeps until an interrupt.
    Sleeps,
}

/// What the guest does.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// `read`, `write`, `randread`, `randwrite`.
    pub access: &'static str,
    /// Requests in flight.
    pub depth: u32,
    /// How it learns of their end.
    pub learning: Learning,
    /// No request begins later.
    pub time: Duration,
    /// No more requests than these, if any number is given.
    pub requests: Option<u32>,
}

/// The load's results, as the guest prints them.
#[derive(Debug, Clone, Copy)]
pub struct Done {
    /// Requests that were answered.
    pub requests: f64,
    /// Number of times that the driver kicked the device.
    pub kicks: f64,
    /// Interrupts that it had.
    pub irqs: f64,
    /// From the first to the last.
    pub seconds: f64,
}

/// What it took the host, from before the first request until the guest had reported: some three
/// hundred exits and calls are the report's.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// Ways out of the guest; where KVM does not count them, instructions that it carried out for it.
    pub exits: u64,
    /// Those that the VMM sees.
    pub user_exits: u64,
    /// System calls of the VMM.
    pub calls: u64,
}

/// Boots a machine with 4 KiB blocks on `image`, for which `options` of vmm-front's `--disk` say how it
/// is opened, and waits for the load's end.
///
/// # Errors
/// When the machine does not start, or the guest finds anything wrong.
pub fn put_on(image: &Path, options: &str, load: &Load) -> anyhow::Result<Done> {
    let mut machine = Machine::start(image, options, load, 0)?;
    machine.wait_for_done(load)
}

/// The same, counted. Counting costs time of its own: how long it takes says nothing.
///
/// # Errors
/// As [`put_on`], and when the kernel does not count.
pub fn count_on(image: &Path, options: &str, load: &Load) -> anyhow::Result<(Done, Cost)> {
    if let Some(reason) = event_count::missing() {
        anyhow::bail!(reason);
    }
    let mut machine = Machine::start(image, options, load, PAUSE_MS)?;
    machine.wait_for("load begin", PATIENCE)?;
    let count = |event| EventCount::begin(event, machine.process.id());
    let exits = count(EXITS)?;
    let emulated = count(EMULATED)?;
    let user_exits = count(USER_EXITS)?;
    let calls = count(SYSTEM_CALLS)?;
    let done = machine.wait_for_done(load)?;
    let cost = Cost {
        exits: match exits.so_far()? {
            0 => emulated.so_far()?,
            exits => exits,
        },
        user_exits: user_exits.so_far()?,
        calls: calls.so_far()?,
    };
    Ok((done, cost))
}

/// A machine. Dropping it ends it.
struct Machine {
    process: Child,
    lines: Receiver<String>,
    printed: String,
}

impl Machine {
    fn start(image: &Path, options: &str, load: &Load, pause_ms: u32) -> anyhow::Result<Self> {
        let mode = match load.learning {
            Learning::Polls => "poll",
            Learning::Sleeps => "irq",
        };
        let words = format!(
            "tests=none then=idle mode={mode} load={} load_depth={} load_ms={} load_requests={} load_pause_ms={pause_ms}",
            load.access,
            load.depth,
            load.time.as_millis(),
            load.requests.unwrap_or(0),
        );
        let mut process = Command::new(artifacts::program("vmm-front")?)
            .args(["run", "--memory", "16M", "--cmdline", &words])
            .arg("--vmm")
            .arg(artifacts::program("kvmlet-vmm")?)
            .arg("--kernel")
            .arg(testguest::elf()?)
            .arg("--disk")
            .arg(format!("{}{options}", image.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("vmm-front")?;
        let output = process.stdout.take().context("no standard output")?;
        let (sender, lines) = channel();
        // Ends with the machine.
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            process,
            lines,
            printed: String::new(),
        })
    }

    /// Waits until the guest has printed a line with `wanted`.
    fn wait_for(&mut self, wanted: &str, limit: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let printed = &mut self.printed;
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    printed.push_str(line.trim_end());
                    printed.push('\n');
                    if line.contains(wanted) {
                        return Ok(());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    anyhow::bail!("{wanted:?} was not printed in time; printed:\n{printed}")
                }
                Err(RecvTimeoutError::Disconnected) => {
                    anyhow::bail!("it ended before {wanted:?} was printed; printed:\n{printed}")
                }
            }
        }
    }

    fn wait_for_done(&mut self, load: &Load) -> anyhow::Result<Done> {
        self.wait_for("TESTGUEST done", load.time + PATIENCE)?;
        let results = Results::of_console(&self.printed);
        let line = results.of("load");
        let ok = line.iter().any(|line| line.starts_with("ok "));
        anyhow::ensure!(ok, "the load failed:\n{}", self.printed);
        let number = |key: &str| {
            let words = line.iter().flat_map(|line| line.split(' '));
            let value = words
                .filter_map(|word| word.split_once('='))
                .find(|(name, _)| *name == key)
                .map(|(_, value)| value.parse::<f64>());
            value
                .with_context(|| format!("no {key} in {line:?}"))?
                .with_context(|| format!("{key} in {line:?}"))
        };
        Ok(Done {
            requests: number("requests")?,
            kicks: number("kicks")?,
            irqs: number("irqs")?,
            seconds: number("us")? / 1e6,
        })
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
