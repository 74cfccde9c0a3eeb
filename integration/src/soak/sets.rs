//! Sets of guests that are scaled from nothing and back while their agent is killed at each step: as many run as are wanted, and
//! a set that has what it wants writes nothing.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::kill_agent;
use crate::agent::{Agent, GuestSpec};
use crate::commands::Commands;
use crate::sim::Random;

/// Until all guests are as wanted, on a machine that has more to do.
const PATIENCE: Duration = Duration::from_secs(300);

/// How long nothing may be written once all is as wanted.
const QUIET: Duration = Duration::from_secs(3);

/// How many sets of how many guests.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// From which the moments of kills follow.
    pub seed: u64,
    /// Sets beside each other.
    pub sets: u32,
    /// Guests of each.
    pub replicas: u32,
}

/// Counters of a finished campaign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// A set was scaled.
    pub transitions: u32,
    /// The agent was killed.
    pub kills: u32,
    /// Writes of objects for guests that came: those of the guests' own states and of events among them.
    pub writes_up: u64,
    /// The same for guests that went.
    pub writes_down: u64,
    /// Times that nothing was written for a while once all was as wanted.
    pub quiet: u32,
}

/// The manifest of a set of small guests, without disks and NICs.
///
/// # Errors
/// When the manifest of a guest has no spec.
pub fn manifest(name: &str, replicas: u32) -> anyhow::Result<String> {
    let vmi = GuestSpec::testguest(name, "tests=none then=tick tick_ms=1000")
        .without_devices()
        .manifest();
    let (_, spec) = vmi
        .split_once("\nspec:\n")
        .with_context(|| format!("no spec in {vmi}"))?;
    let spec: String = spec.lines().map(|line| format!("    {line}\n")).collect();
    Ok(format!(
        "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstanceReplicaSet\nmetadata:\n  name: {name}\n\
         spec:\n  replicas: {replicas}\n  selector:\n    matchLabels:\n      set: {name}\n  template:\n    metadata:\n      \
         labels:\n        set: {name}\n    spec:\n{spec}"
    ))
}

/// Runs a campaign on a machine with an agent that runs and has the image of `testguest`.
///
/// # Errors
/// When guests are too many or too few; the error names the seed.
pub fn scaled<M: Commands>(
    machine: &M,
    agent: &Agent<'_, M>,
    campaign: Campaign,
    progress: &mut dyn FnMut(&Tally),
) -> anyhow::Result<Tally> {
    let mut run = Run {
        machine,
        agent,
        campaign,
        random: Random::new(campaign.seed),
        marks: 0,
        tally: Tally::default(),
    };
    let done = run.all(progress);
    done.with_context(|| format!("seed {}, {:?}:\n{}", campaign.seed, run.tally, agent.log()))?;
    Ok(run.tally)
}

struct Run<'a, M: Commands> {
    machine: &'a M,
    agent: &'a Agent<'a, M>,
    campaign: Campaign,
    random: Random,
    /// How often the version was asked for.
    marks: u32,
    tally: Tally,
}

impl<M: Commands> Run<'_, M> {
    fn all(&mut self, progress: &mut dyn FnMut(&Tally)) -> anyhow::Result<()> {
        for number in 0..self.campaign.sets {
            self.agent.apply(&manifest(&format!("set{number}"), 0)?)?;
        }
        self.agent
            .apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: mark}\n")?;
        for replicas in [self.campaign.replicas, 0] {
            let before = self.version()?;
            for number in 0..self.campaign.sets {
                self.scale(number, replicas)?;
            }
            self.settle(replicas)?;
            let after = self.quiet()?;
            let writes = after.saturating_sub(before);
            if replicas == 0 {
                self.tally.writes_down = writes;
            } else {
                self.tally.writes_up = writes;
            }
            progress(&self.tally);
        }
        self.agent.kill()?;
        let checked = self
            .machine
            .sh("kvmlet check-store --config /var/lib/kvmlet/kvmlet.toml")?;
        ensure!(checked.contains(": sound"), "{checked}");
        Ok(())
    }

    /// Scales a set, and kills the agent in the midst of what follows.
    fn scale(&mut self, number: u32, replicas: u32) -> anyhow::Result<()> {
        let order = format!("scale vmirs set{number} --replicas {replicas}");
        let scaled = self.agent.kvmctl(&order)?;
        ensure!(scaled.code == Some(0), "{order}: {scaled}");
        self.tally.transitions += 1;
        let killed = kill_agent(self.machine, self.agent, &mut self.random, u32::MAX)?;
        self.tally.kills += killed.all;
        Ok(())
    }

    /// Waits until each set has so many guests, all ready, and nobody else runs.
    fn settle(&self, replicas: u32) -> anyhow::Result<()> {
        let all = replicas * self.campaign.sets;
        let status = "kvmctl get vmirs -o 'jsonpath={range .items[*]}{.status.replicas} {.status.readyReplicas}{\"\\n\"}{end}'";
        let settled = format!(
            "test $({status} | grep -cx '{replicas} {replicas}') = {} && \
             test $(kvmctl get vmi -o name | wc -l) = {all} && test $(pidof kvmlet-vmm | wc -w) = {all}",
            self.campaign.sets
        );
        self.machine.wait_for(&settled, PATIENCE)?;
        Ok(())
    }

    /// The version of the ledger, which the question makes one higher.
    fn version(&mut self) -> anyhow::Result<u64> {
        self.marks += 1;
        let order = format!("annotate cm mark --overwrite at={}", self.marks);
        let marked = self.agent.kvmctl(&order)?;
        ensure!(marked.code == Some(0), "{order}: {marked}");
        let version = self
            .agent
            .kvmctl("get cm mark -o jsonpath={.metadata.resourceVersion}")?;
        version
            .stdout
            .trim()
            .parse()
            .with_context(|| format!("{version}"))
    }

    /// Waits until nothing is written for a while; the version then.
    fn quiet(&mut self) -> anyhow::Result<u64> {
        let until = Instant::now() + PATIENCE;
        let mut last = self.version()?;
        loop {
            // That nothing is written is observed for a while.
            thread::sleep(QUIET);
            let next = self.version()?;
            if next == last + 1 {
                self.tally.quiet += 1;
                return Ok(next);
            }
            ensure!(Instant::now() < until, "something is written for ever");
            last = next;
        }
    }
}
