//! A transfer by one connection through masquerade, while agents are killed and rules of other guests come and go: nothing of it
//! is lost, and the connection is not reset.

use std::time::Duration;

use anyhow::{Context, ensure};

use super::kill_agent;
use crate::agent::{Agent, GuestSpec};
use crate::commands::{Commands, Session};
use crate::image::busybox::GuestImage;
use crate::sim::Random;

const PATIENCE: Duration = Duration::from_secs(300);
/// Until its share of the bytes is sent after a round.
const SHARE: Duration = Duration::from_secs(900);

/// Bytes of what the peer sends at a time, with 10 ms in between.
const CHUNK_BYTES: u64 = 256 << 10;

/// Chunks that no buffer of a connection that stands still takes: 6 MiB, where the kernel keeps 4 MiB at most.
const MORE_THAN_BUFFERS: u64 = 24;

/// The guest's peer: it sends noise, counts it, keeps its digest, and ends at a word from the test.
const PEER: &str = "rm -f /run/enough /run/copy; echo 0 >/run/chunks; mkfifo /run/copy; setsid sh -c '\
    sha256sum </run/copy >/run/digest & count=0; \
    while [ ! -e /run/enough ]; do \
      dd if=/dev/urandom bs=256k count=1 2>/dev/null; count=$((count + 1)); echo $count >/run/chunks; usleep 10000; \
    done | tee /run/copy | nc -l -p 9000' </dev/null >/dev/null 2>&1 &";

/// How often the agent is killed during the transfer.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// From which moments follow; the machine's own timing does not.
    pub seed: u64,
    /// Kills in all.
    pub kills: u32,
    /// What is transferred at least, with the kills spread over it.
    pub bytes: u64,
    /// Guests that join the pod network together and leave it, between two rounds of kills.
    pub others: u32,
}

/// Counters of a finished transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The agent was killed.
    pub kills: u32,
    /// Other guests that joined the pod network and left it meanwhile.
    pub others: u32,
    /// Bytes that came as they were sent.
    pub bytes: u64,
}

/// Runs a campaign. The agent runs, and a guest of the pod network with busybox waits at its prompt and has its address.
///
/// # Errors
/// When a byte is lost or another, or nothing comes any more.
pub fn outlives_kills<M: Commands>(
    machine: &M,
    agent: &Agent<'_, M>,
    console: &mut Session,
    campaign: Campaign,
) -> anyhow::Result<Tally> {
    let mut run = Run {
        machine,
        agent,
        random: Random::new(campaign.seed),
        tally: Tally::default(),
    };
    machine.sh(PEER)?;
    machine.wait_for("netstat -ltn | grep -q ':9000 '", PATIENCE)?;
    console.write(b"nc 10.77.0.1 9000 | sha256sum\n")?;
    while run.tally.kills < campaign.kills {
        let seen = run.tally;
        let done = run.round(campaign).and_then(|()| {
            let share = u64::from(run.tally.kills.min(campaign.kills));
            let bytes = campaign.bytes * share / u64::from(campaign.kills);
            run.until_sent(bytes.div_ceil(CHUNK_BYTES), SHARE)
        });
        done.with_context(|| format!("seed {}, after {seen:?}:\n{}", campaign.seed, agent.log()))?;
    }
    machine.sh("touch /run/enough")?;
    let received = console.read_until(GuestImage::PROMPT, PATIENCE)?;
    let digest = machine.wait_for("grep -o '^[0-9a-f]*' /run/digest", PATIENCE)?;
    let digest = digest.trim();
    ensure!(received.contains(digest), "{digest} was sent: {received}");
    run.tally.bytes = run.chunks()? * CHUNK_BYTES;
    Ok(run.tally)
}

struct Run<'a, M: Commands> {
    machine: &'a M,
    agent: &'a Agent<'a, M>,
    random: Random,
    tally: Tally,
}

impl<M: Commands> Run<'_, M> {
    /// A time without an agent, kills at random moments, and other guests that join and leave.
    fn round(&mut self, Campaign { kills, others, .. }: Campaign) -> anyhow::Result<()> {
        self.goes_on()?;
        self.agent.kill()?;
        self.goes_on().context("without an agent")?;
        self.agent.start()?;
        self.tally.kills += 1;
        let links = |count| format!("test $(ls /sys/class/net | grep -c kvp) = {count}");
        let names: Vec<String> = (0..others)
            .map(|number| format!("other-{number}"))
            .collect();
        for name in &names {
            let other = GuestSpec::testguest(name, "tests=none then=idle").on_pod_network();
            self.agent.apply(&other.manifest())?;
        }
        self.machine.wait_for(&links(1 + others), PATIENCE)?;
        if self.tally.kills < kills {
            let left = kills - self.tally.kills;
            let killed = kill_agent(self.machine, self.agent, &mut self.random, left)?;
            self.tally.kills += killed.all;
        }
        let deleted = format!("delete vmi {} --grace-period 0", names.join(" "));
        let deleted = self.agent.kvmctl(&deleted)?;
        ensure!(deleted.code == Some(0), "{deleted}");
        self.machine.wait_for(&links(1), PATIENCE)?;
        self.tally.others += others;
        self.goes_on()
    }

    fn chunks(&self) -> anyhow::Result<u64> {
        // It is empty for a moment while it is written anew.
        let count = self.machine.wait_for("grep . /run/chunks", PATIENCE)?;
        Ok(count.trim().parse()?)
    }

    /// Waits until more was sent than what the buffers on the way take.
    fn goes_on(&self) -> anyhow::Result<()> {
        let beyond = self.chunks()? + MORE_THAN_BUFFERS;
        self.until_sent(beyond + 1, PATIENCE)
    }

    fn until_sent(&self, chunks: u64, patience: Duration) -> anyhow::Result<()> {
        let sent = format!("test $(cat /run/chunks) -ge {chunks}");
        let went_on = self.machine.wait_for(&sent, patience);
        went_on.map(drop).context("the transfer does not go on")
    }
}
