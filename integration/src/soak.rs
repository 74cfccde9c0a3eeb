//! Campaigns: the agent is killed at random moments while guests start, run and stop, and none of them may
//! notice.
//!
//! Every guest counts on its console from the first number on, and the whole of its log is read: a number
//! that is missing, comes twice or begins anew is a guest that was lost, doubled or disturbed. Moments and
//! victims follow from the seed; the machine's own timing does not.

pub mod clients;
mod clock;
pub mod container_disk;
pub mod examples;
pub mod firmware;
pub mod images;
mod journal;
pub mod network;
pub mod overlay;
pub mod powercut;
pub mod scheduler;
pub mod sets;
pub mod transfer;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::agent::{Agent, GuestSpec};
use crate::commands::Commands;
use crate::counter;
use crate::sim::Random;

/// How long a guest may take to run, and everything to be in order again.
const PATIENCE: Duration = Duration::from_secs(600);

/// Logs are read whenever the agent was killed so often.
const READ_EVERY: u32 = 20;

/// Longest that the agent lives after it was started, in milliseconds: some die before they answer.
const LONGEST_LIFE_MS: u64 = 3000;

/// How often in a hundred a guest is replaced before a kill.
const REPLACED: u64 = 40;

/// Has a stock kernel do without tracefs, whose 8 MiB of inodes it has not left of 64 MiB: it keeps 46 for itself.
const FRUGAL: &str = "lockdown=confidentiality";

/// Guests that a campaign runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `testguest`, on any KVM.
    Testguest,
    /// A stock Linux kernel with busybox.
    Stock,
}

impl Kind {
    fn manifest(self, name: &str) -> String {
        let spec = match self {
            Self::Testguest => GuestSpec::testguest(name, "tests=none then=tick tick_ms=1000"),
            Self::Stock => GuestSpec {
                memory_mib: 64,
                ..GuestSpec::busybox(name, &format!("{FRUGAL} {}", counter::command_line()))
            },
        };
        spec.without_devices().manifest()
    }

    /// The numbers in a log, in their order.
    fn numbers(self, log: &str) -> Vec<u32> {
        let (before, after) = match self {
            Self::Testguest => ("tick count=", ' '),
            Self::Stock => ("count=", '.'),
        };
        let found = log.split(before).skip(1).filter_map(|rest| {
            // The last one may not be written out yet.
            let (number, _) = rest.split_once(after)?;
            number.parse().ok()
        });
        found.collect()
    }

    const fn first(self) -> u32 {
        match self {
            Self::Testguest => 1,
            Self::Stock => 0,
        }
    }
}

/// What a campaign is.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// From which all choices follow.
    pub seed: u64,
    /// How often the agent is killed.
    pub kills: u32,
    /// Guests at a time.
    pub guests: u32,
    /// Of which kind.
    pub kind: Kind,
}

/// Counters of a finished campaign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The agent was killed.
    pub kills: u32,
    /// Of these, before it had answered anybody.
    pub early: u32,
    /// Guests that were made.
    pub made: u32,
    /// Guests that were deleted while they ran or started.
    pub deleted: u32,
    /// Numbers that were read, all in their places.
    pub numbers: u64,
}

/// A guest as it was last seen.
#[derive(Debug, Default)]
struct Member {
    uid: String,
    /// The process of its VMM, once it ran.
    pid: Option<String>,
    /// The last number that was read.
    reached: Option<u32>,
}

/// A line of `kvmctl get`.
struct Seen {
    uid: String,
    phase: String,
}

struct Run<'a, M: Commands> {
    machine: &'a M,
    agent: &'a Agent<'a, M>,
    campaign: Campaign,
    random: Random,
    members: BTreeMap<String, Member>,
    tally: Tally,
}

/// Runs a campaign. The machine has the guests' image, and the agent is prepared and runs.
///
/// # Errors
/// At the first guest that noticed something; the error names the seed and how many kills there had been.
pub fn kills<M: Commands>(
    machine: &M,
    agent: &Agent<'_, M>,
    campaign: Campaign,
    mut progress: impl FnMut(&Tally),
) -> anyhow::Result<Tally> {
    let mut run = Run {
        machine,
        agent,
        campaign,
        random: Random::new(campaign.seed),
        members: BTreeMap::new(),
        tally: Tally::default(),
    };
    let done = run.all(&mut progress);
    done.with_context(|| {
        format!(
            "seed {}, after {} kills:\n{}",
            campaign.seed,
            run.tally.kills,
            agent.log()
        )
    })?;
    Ok(run.tally)
}

impl<M: Commands> Run<'_, M> {
    fn all(&mut self, progress: &mut impl FnMut(&Tally)) -> anyhow::Result<()> {
        for _ in 0..self.campaign.guests {
            self.add()?;
        }
        let mut read_at = 0;
        while self.tally.kills < self.campaign.kills {
            if self.random.chance(REPLACED) {
                self.replace()?;
            }
            self.kill()?;
            self.check()?;
            if self.tally.kills - read_at >= READ_EVERY {
                read_at = self.tally.kills;
                self.settle()?;
                progress(&self.tally);
            }
        }
        self.settle()?;
        self.end()
    }

    fn add(&mut self) -> anyhow::Result<()> {
        let name = format!("guest-{}", self.tally.made);
        self.agent.apply(&self.campaign.kind.manifest(&name))?;
        let uid = self.agent.value(&name, ".metadata.uid")?;
        let member = Member {
            uid,
            ..Member::default()
        };
        self.members.insert(name, member);
        self.tally.made += 1;
        Ok(())
    }

    /// One goes, whatever it is at, and another comes.
    fn replace(&mut self) -> anyhow::Result<()> {
        let count = u64::try_from(self.members.len())?;
        let chosen = usize::try_from(self.random.below(count))?;
        let Some(name) = self.members.keys().nth(chosen).cloned() else {
            return Ok(());
        };
        self.members.remove(&name);
        let grace = if self.random.chance(50) { 0 } else { 2 };
        let order = format!("delete vmi {name} --grace-period {grace} --wait=false");
        let deleted = self.agent.kvmctl(&order)?;
        ensure!(deleted.code == Some(0), "{order}: {deleted}");
        self.tally.deleted += 1;
        self.add()
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        let left = self.campaign.kills - self.tally.kills;
        let killed = kill_agent(self.machine, self.agent, &mut self.random, left)?;
        self.tally.kills += killed.all;
        self.tally.early += killed.early;
        Ok(())
    }

    fn seen(&self) -> anyhow::Result<BTreeMap<String, Seen>> {
        let columns = "N:.metadata.name,U:.metadata.uid,P:.status.phase";
        let listed = self
            .agent
            .kvmctl(&format!("get vmi --no-headers -o custom-columns={columns}"))?;
        ensure!(listed.code == Some(0), "{listed}");
        let lines = listed.stdout.lines().filter_map(|line| {
            let mut cells = line.split_whitespace();
            let name = cells.next()?.to_owned();
            let uid = cells.next()?.to_owned();
            let phase = cells.next()?.to_owned();
            Some((name, Seen { uid, phase }))
        });
        Ok(lines.collect())
    }

    /// What ran still runs, in the process that it ran in, and nothing runs twice.
    fn check(&mut self) -> anyhow::Result<()> {
        let (seen, processes) = (self.seen()?, self.agent.living_vmms()?);
        for (uid, pids) in &processes {
            ensure!(pids.len() == 1, "VMI {uid} has the VMMs {pids:?}");
        }
        for (name, member) in &mut self.members {
            let found = seen.get(name).with_context(|| format!("{name} is lost"))?;
            ensure!(found.uid == member.uid, "{name} is another one");
            ensure!(
                found.phase != "Failed" && found.phase != "Succeeded",
                "{name} is {}",
                found.phase
            );
            let process = processes.get(&member.uid).and_then(|pids| pids.first());
            if let Some(pid) = &member.pid {
                ensure!(found.phase == "Running", "{name} is {}", found.phase);
                ensure!(
                    process == Some(pid),
                    "{name} ran in process {pid}, and now in {process:?}"
                );
            } else if found.phase == "Running" {
                member.pid = process.cloned();
            }
        }
        Ok(())
    }

    /// Waits until all run, and reads what they printed.
    fn settle(&mut self) -> anyhow::Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            self.check()?;
            let waiting = self.members.values().filter(|member| member.pid.is_none());
            if waiting.count() == 0 {
                break;
            }
            ensure!(Instant::now() < until, "not all guests run");
            // Guests are looked for by their processes, of which there is no event.
            std::thread::sleep(Duration::from_millis(500));
        }
        for name in self.members.keys().cloned().collect::<Vec<_>>() {
            self.read(&name, until)?;
        }
        Ok(())
    }

    /// Reads a guest's log until it counts on, and checks every number of it.
    fn read(&mut self, name: &str, until: Instant) -> anyhow::Result<()> {
        let kind = self.campaign.kind;
        loop {
            let log = self.agent.kvmctl(&format!("logs {name}"))?;
            ensure!(log.code == Some(0), "{log}");
            let numbers = kind.numbers(&log.stdout);
            check(&numbers, kind.first()).with_context(|| format!("{name} was disturbed"))?;
            let member = self.members.get_mut(name).context("no such guest")?;
            if numbers.last().copied() > member.reached {
                let new = numbers
                    .iter()
                    .filter(|number| Some(**number) > member.reached);
                self.tally.numbers += u64::try_from(new.count())?;
                member.reached = numbers.last().copied();
                return Ok(());
            }
            ensure!(Instant::now() < until, "{name} counts no more: {log}");
            // The log is read through `kvmctl`, as a whole: a guest prints a number a second.
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    /// All guests go, and nothing of them is left.
    fn end(&mut self) -> anyhow::Result<()> {
        let names: Vec<String> = self.members.keys().cloned().collect();
        for some in names.chunks(20) {
            let order = format!("delete vmi {} --grace-period 0", some.join(" "));
            let deleted = self.agent.kvmctl(&order)?;
            ensure!(deleted.code == Some(0), "{order}: {deleted}");
        }
        self.members.clear();
        self.machine
            .wait_for("! pidof kvmlet-vmm", PATIENCE)
            .map(drop)
    }
}

/// How often an agent was killed.
struct Killed {
    all: u32,
    /// Before it had answered anybody.
    early: u32,
}

/// Kills the agent at a random moment, some of its successors too before they are up, `limit` in all at most, and leaves one that
/// answers.
fn kill_agent<M: Commands>(
    machine: &M,
    agent: &Agent<'_, M>,
    random: &mut Random,
    limit: u32,
) -> anyhow::Result<Killed> {
    // A random moment in the life of the agent is the point of the test.
    std::thread::sleep(Duration::from_millis(random.below(LONGEST_LIFE_MS)));
    agent.kill()?;
    let mut killed = Killed { all: 1, early: 0 };
    agent.launch()?;
    while random.chance(30) && killed.all < limit {
        // A random moment of the start.
        std::thread::sleep(Duration::from_millis(random.below(400)));
        machine.wait_for("pidof kvmlet", PATIENCE)?;
        agent.kill()?;
        killed.all += 1;
        killed.early += 1;
        agent.launch()?;
    }
    agent.wait_until_it_answers()?;
    Ok(killed)
}

/// Whether the numbers are `first` and those after it, each once.
fn check(numbers: &[u32], first: u32) -> anyhow::Result<()> {
    for (number, expected) in numbers.iter().zip(first..) {
        ensure!(
            *number == expected,
            "{number} stands where {expected} belongs"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_missing_or_comes_twice_is_found() {
        assert!(check(&[1, 2, 3], 1).is_ok());
        assert!(check(&[], 1).is_ok());
        for disturbed in [[1, 3, 4], [1, 1, 2], [2, 3, 4], [1, 2, 1]] {
            assert!(check(&disturbed, 1).is_err(), "{disturbed:?}");
        }
    }

    #[test]
    fn numbers_are_read_from_both_kinds_of_logs() {
        let log = "TESTGUEST tick count=1 ms=1000\r\nTESTGUEST tick count=2 ms=2000\r\nTESTGUEST tick coun";
        assert_eq!(Kind::Testguest.numbers(log), [1, 2]);
        assert_eq!(
            Kind::Stock.numbers("login\ncount=0.\r\ncount=1.\r\ncount=1"),
            [0, 1]
        );
    }
}
