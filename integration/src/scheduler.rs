//! The reference scheduler of `integration/scheduler`, running on a machine under test.

use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::Value;

use crate::commands::Commands;

/// How long anything that a test waits for may take: a node in a box starts a guest within a minute.
const PATIENCE: Duration = Duration::from_secs(240);

/// A scheduler. Its state is in a directory of its machine and outlives it.
#[derive(Debug)]
pub struct Scheduler<'m, M: Commands> {
    machine: &'m M,
    directory: String,
    nodes: String,
}

impl<'m, M: Commands> Scheduler<'m, M> {
    /// Starts one that nodes reach by a socket `nodes` in this directory.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start(machine: &'m M, directory: &str) -> anyhow::Result<Self> {
        Self::start_at(machine, directory, "nodes")
    }

    /// Starts one that nodes reach at `nodes`, as its usage has it; files are those of the directory.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start_at(machine: &'m M, directory: &str, nodes: &str) -> anyhow::Result<Self> {
        let scheduler = Self::running_at(machine, directory, nodes);
        scheduler.launch()?;
        Ok(scheduler)
    }

    /// The one that runs there already.
    #[must_use]
    pub fn running_at(machine: &'m M, directory: &str, nodes: &str) -> Self {
        Self {
            machine,
            directory: directory.to_owned(),
            nodes: nodes.to_owned(),
        }
    }

    fn launch(&self) -> anyhow::Result<()> {
        let Self {
            directory, nodes, ..
        } = self;
        self.machine.sh(&format!(
            "mkdir -p {directory} && cd {directory} && rm -f nodes people && \
             {{ setsid scheduler serve {nodes} people state.json 1 </dev/null >>scheduler.log 2>&1 & }}"
        ))?;
        let answers = format!("scheduler order {directory}/people get");
        let answered = self.machine.wait_for(&answers, Duration::from_secs(60));
        answered.with_context(|| self.log()).map(drop)
    }

    /// Kills it; another comes with what it remembers.
    ///
    /// # Errors
    /// When there is none, or it does not come up again.
    pub fn restart(&self) -> anyhow::Result<()> {
        // A shell cannot wait for a process that is not its child, so it looks again.
        self.machine.sh(
            "pid=$(pidof scheduler) && kill -9 $pid && while kill -0 $pid 2>/dev/null; do sleep 0.1; done",
        )?;
        self.launch()
    }

    fn log(&self) -> String {
        let log = self
            .machine
            .sh(&format!("cat {}/scheduler.log", self.directory));
        log.unwrap_or_else(|error| format!("{error:#}"))
    }

    /// Tells it what a person wants.
    ///
    /// # Errors
    /// When the scheduler refuses.
    pub fn order(&self, words: &str) -> anyhow::Result<String> {
        self.machine.sh(&format!(
            "scheduler order {}/people {words}",
            self.directory
        ))
    }

    /// Has it run a VMI; `lease` is `stop SECONDS GRACE` or nothing.
    ///
    /// # Errors
    /// When the scheduler refuses.
    pub fn apply(&self, manifest: &str, lease: &str) -> anyhow::Result<()> {
        let file = format!("{}/vmi.yaml", self.directory);
        self.machine.put(&file, 0o644, manifest.as_bytes())?;
        self.order(&format!("apply {file} {lease}")).map(drop)
    }

    /// All that it knows.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn state(&self) -> anyhow::Result<Value> {
        Ok(serde_json::from_str(&self.order("get")?)?)
    }

    /// Where a VMI was placed; null when it is nowhere.
    ///
    /// # Errors
    /// As [`Self::state`].
    pub fn place(&self, name: &str) -> anyhow::Result<Value> {
        Ok(self.state()?["vmis"][format!("default/{name}")]["placement"].clone())
    }

    /// The node where a VMI was placed; empty when it is nowhere.
    ///
    /// # Errors
    /// As [`Self::state`].
    pub fn node_of(&self, name: &str) -> anyhow::Result<String> {
        let place = self.place(name)?;
        Ok(place["node"].as_str().unwrap_or_default().to_owned())
    }

    /// Whether a node has a session.
    ///
    /// # Errors
    /// As [`Self::state`].
    pub fn is_connected(&self, node: &str) -> anyhow::Result<bool> {
        Ok(self.state()?["nodes"][node]["connected"] == true)
    }

    /// Waits until something is so.
    ///
    /// # Errors
    /// When it is not for long; the error holds `what` and the state.
    pub fn until(
        &self,
        what: &str,
        mut is_so: impl FnMut() -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let end = Instant::now() + PATIENCE;
        while !is_so()? {
            anyhow::ensure!(Instant::now() < end, "not so: {what}: {:#}", self.state()?);
            // The scheduler answers questions and sends no events.
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Whether a VMI is known to run on a node that has a session.
    ///
    /// # Errors
    /// As [`Self::state`].
    pub fn is_running(&self, name: &str, node: &str) -> anyhow::Result<bool> {
        let place = self.place(name)?;
        Ok(place["phase"] == "Running" && place["node"] == node && self.is_connected(node)?)
    }

    /// Waits until a VMI is known to run on a node; the answer is its token.
    ///
    /// # Errors
    /// When the guest does not run on the node before the timeout.
    pub fn runs_on(&self, name: &str, node: &str) -> anyhow::Result<u64> {
        self.until(&format!("{name} runs on {node}"), || {
            self.is_running(name, node)
        })?;
        self.place(name)?["token"].as_u64().context("a token")
    }

    /// Waits until all these nodes have a session.
    ///
    /// # Errors
    /// When a node is not ready before the timeout.
    pub fn wait_for_nodes(&self, names: &[&str]) -> anyhow::Result<()> {
        self.until(&format!("{names:?} are there"), || {
            let there: anyhow::Result<Vec<bool>> =
                names.iter().map(|name| self.is_connected(name)).collect();
            Ok(there?.into_iter().all(|there| there))
        })
    }
}
