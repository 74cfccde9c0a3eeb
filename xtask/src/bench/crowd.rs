//! `cargo xtask bench crowd`: many small machines at once on this machine's own KVM.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use integration::{artifacts, skip, testguest};

use super::figure::{self, Better, Figure};
use super::median::median;
use crate::progress::step;

/// A machine that is not up after this has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// How many of the first and of the last machines the printed figures are of.
const SAMPLE: usize = 20;

/// Starts `count` machines of 16 MiB one after the other, all of which stay, and prints how long each
/// took from the start of its programs to its guest's report.
///
/// # Errors
/// When one does not come up. All are gone when this returns.
pub fn run(root: &std::path::Path, count: usize, json: Option<PathBuf>) -> anyhow::Result<()> {
    if let Some(reason) = skip::without_kvm() {
        anyhow::bail!("SKIPPED, {reason}");
    }
    step("build", || crate::build::run(root))?;
    let figures = step("machines", || crowd(count))?;
    figure::print(&figures);
    match json {
        Some(path) => figure::write(&figures, &path),
        None => Ok(()),
    }
}

fn crowd(count: usize) -> anyhow::Result<Vec<Figure>> {
    let mut machines = Vec::with_capacity(count);
    let mut ms = Vec::with_capacity(count);
    let begun = Instant::now();
    for _ in 0..count {
        let started = Instant::now();
        machines.push(Machine::start()?);
        ms.push(started.elapsed().as_secs_f64() * 1e3);
    }
    let seconds = begun.elapsed().as_secs_f64();
    let count = f64::from(u32::try_from(count)?);
    let first = median(ms.get(..SAMPLE.min(ms.len())).unwrap_or_default());
    let last = median(
        ms.get(ms.len().saturating_sub(SAMPLE)..)
            .unwrap_or_default(),
    );
    let how =
        "start of vmm-front to TESTGUEST done, 16 MiB, serial console only; this machine's KVM";
    Ok(vec![
        Figure::new("machines at once", count, "machines", Better::More).how(how),
        Figure::new(
            "machines started a second",
            count / seconds,
            "per s",
            Better::More,
        )
        .how(how),
        Figure::new("start of one of the first 20", first, "ms", Better::Less).how(how),
        Figure::new("start of one of the last 20", last, "ms", Better::Less).how(how),
        Figure::new("last against first", last / first, "ratio", Better::Less)
            .budget(2.0, 1.2)
            .how(how),
    ])
}

/// A machine whose guest sleeps. Dropping it ends it.
struct Machine(Child);

impl Machine {
    fn start() -> anyhow::Result<Self> {
        let child = Command::new(artifacts::program("vmm-front")?)
            .args([
                "run",
                "--memory",
                "16M",
                "--cmdline",
                "tests=none then=idle",
            ])
            .arg("--vmm")
            .arg(artifacts::program("kvmlet-vmm")?)
            .arg("--kernel")
            .arg(testguest::elf()?)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("vmm-front")?;
        let mut machine = Self(child);
        let lines = machine.lines()?;
        loop {
            match lines.recv_timeout(PATIENCE) {
                Ok(line) if line.contains("TESTGUEST done") => return Ok(machine),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => anyhow::bail!("a guest that does not report"),
                Err(RecvTimeoutError::Disconnected) => anyhow::bail!("a machine ended at once"),
            }
        }
    }

    /// What the guest prints until it has reported.
    fn lines(&mut self) -> anyhow::Result<Receiver<String>> {
        let output = self.0.stdout.take().context("no standard output")?;
        let (sender, lines) = channel();
        // Ends when nobody listens any more; the guest is silent then.
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let is_last = line.contains("TESTGUEST done");
                if sender.send(line).is_err() || is_last {
                    return;
                }
            }
        });
        Ok(lines)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
