//! Guests of the pod network that come and go while their agent is killed at random moments: afterwards the node is as it
//! was, and every address of the pool can be had.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::kill_agent;
use crate::agent::{Agent, CONFIG, GuestSpec};
use crate::commands::Commands;
use crate::sim::Random;

/// Until a guest runs, or the node is as it was, on a machine that has more to do.
const PATIENCE: Duration = Duration::from_secs(300);

/// As few addresses as a pool can have.
const POOL: &str = "10.213.0.0/29";
const ADDRESSES: usize = 5;

/// Names of the guests that come and go: as many as there are addresses.
const NAMES: u64 = 5;

/// The node is looked at after so many cycles.
const CHECK_EVERY: u32 = 20;

/// How often in a hundred the agent is killed after a guest was created, and after it was deleted.
const KILLED: u64 = 30;

/// A guest is deleted at most so long after it was created, in milliseconds: some have no VMM yet, and some run.
const LONGEST_MS: u64 = 1500;

/// What a node has of networks. Links, addresses and routes are those that stay while there is no guest; counters are left out.
/// The server of addresses starts with the first guest and ends with its agent, so that it has more than the two sockets of one
/// without guests is what counts.
const PICTURE: &str = r#"
echo links: $(ls /sys/class/net)
echo aliases: $(cat /sys/class/net/*/ifalias)
echo named namespaces: $(ip netns)
echo processes of guests: $(pidof kvmlet-vmm)
cd /proc
echo networks of processes: $(for pid in [0-9]*; do
  case $(readlink $pid/exe) in */kvmlet|*/kvmlet-dhcp|'') ;; *) readlink $pid/ns/net;; esac; done | sort -u)
echo sockets of guests: $(for pid in [0-9]*; do
  case $(readlink $pid/exe) in */kvmlet-dhcp) ls -l $pid/fd | grep -c socket: | grep -v '^[0-2]$';; esac; done)
ip -o addr show | sed 's/^[0-9]*: //; s/valid_lft.*//'
ip route show table all | sed 's/ linkdown//; s/ dead//'
nft --stateless list ruleset
nft -j list table inet others
nft -j list table bridge others
"#;

/// Rules of somebody else, which stay byte for byte: those of a firewall, at the places where the agent's are.
const OTHERS: &str = "
table inet others {
  comment \"of a firewall\"
  set friends { type ipv4_addr . inet_service; flags interval; elements = { 192.0.2.0/24 . 80-90 }; }
  chain forward { type filter hook forward priority 1; policy accept; ip daddr . tcp dport @friends drop comment \"them\"; }
  chain out { type nat hook postrouting priority 101; oifname \"others0\" masquerade; }
}
table bridge others {
  chain in { type filter hook prerouting priority -301; iifname \"others0\" counter packets 5 bytes 9 drop; }
}
";

/// What an agent says where rules are not what it made them.
const BLAME: &str = "somebody changed rules for guests";

/// How often guests come and go.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// From which names and moments follow; the machine's own timing does not.
    pub seed: u64,
    /// Guests that are created and deleted.
    pub cycles: u32,
}

/// Counters of a finished campaign.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Guests that were created and deleted.
    pub cycles: u32,
    /// The agent was killed.
    pub kills: u32,
    /// How far a guest had come when its agent was killed, or when it was deleted.
    pub moments: BTreeMap<String, u32>,
    /// Times that the node was as it was before.
    pub checks: u32,
    /// Addresses that other names got afterwards: all of the pool.
    pub addresses: usize,
}

/// Runs a campaign on a machine with an agent that is prepared and not started, and that has the image of `testguest`.
///
/// # Errors
/// When something is left; the error names the seed and how many cycles there had been.
pub fn leftovers<M: Commands>(
    machine: &M,
    agent: &Agent<'_, M>,
    campaign: Campaign,
    progress: &mut dyn FnMut(&Tally),
) -> anyhow::Result<Tally> {
    let setting = format!("\n[pod_network]\ncidr = \"{POOL}\"\ncidr6 = \"fd00:1:2:3::/64\"\n");
    machine.sh(&format!("printf '%s' '{setting}' >>{CONFIG}"))?;
    machine.sh(&format!("printf '%s' '{OTHERS}' | nft -f -"))?;
    agent.start()?;
    let mut run = Run {
        machine,
        agent,
        random: Random::new(campaign.seed),
        before: String::new(),
        tally: Tally::default(),
    };
    let done = run.all(campaign, progress);
    done.with_context(|| {
        format!(
            "seed {}, after {} cycles:\n{}",
            campaign.seed,
            run.tally.cycles,
            agent.log()
        )
    })?;
    Ok(run.tally)
}

struct Run<'a, M: Commands> {
    machine: &'a M,
    agent: &'a Agent<'a, M>,
    random: Random,
    /// The node after the first guest of all has come and gone.
    before: String,
    tally: Tally,
}

impl<M: Commands> Run<'_, M> {
    fn all(&mut self, campaign: Campaign, progress: &mut dyn FnMut(&Tally)) -> anyhow::Result<()> {
        self.create("first")?;
        self.agent.wait_for_phase("first", "Running", PATIENCE)?;
        self.delete("first")?;
        let gone = "! pidof kvmlet-vmm && ! kvmctl get vmi --no-headers | grep .";
        self.machine.wait_for(gone, PATIENCE)?;
        let gone = "! ls /sys/class/net | grep kvp && ! ip addr | grep tentative";
        self.machine.wait_for(gone, PATIENCE)?;
        self.before = self.machine.sh(PICTURE)?;
        while self.tally.cycles < campaign.cycles {
            self.cycle()?;
            let is_last = self.tally.cycles >= campaign.cycles;
            if is_last || self.tally.cycles.is_multiple_of(CHECK_EVERY) {
                self.kill_unseen()?;
                self.check()?;
                progress(&self.tally);
            }
        }
        self.take_all_addresses()?;
        let log = self.agent.log();
        let blamed = log.lines().find(|line| line.contains(BLAME));
        ensure!(blamed.is_none(), "nobody changed any rule: {blamed:?}");
        self.check()
    }

    fn create(&self, name: &str) -> anyhow::Result<()> {
        let spec = GuestSpec::testguest(name, "tests=none then=tick tick_ms=1000");
        self.agent.apply(&spec.on_pod_network().manifest())
    }

    fn delete(&self, name: &str) -> anyhow::Result<()> {
        let order = format!("delete vmi {name} --grace-period 0 --wait=false");
        let deleted = self.agent.kvmctl(&order)?;
        ensure!(deleted.code == Some(0), "{order}: {deleted}");
        Ok(())
    }

    /// A guest that may still be on its way out has to be gone before another of its name comes.
    fn cycle(&mut self) -> anyhow::Result<()> {
        let name = format!("guest-{}", self.random.below(NAMES));
        self.machine
            .wait_for(&format!("! kvmctl get vmi {name}"), PATIENCE)?;
        self.create(&name)?;
        if self.random.chance(KILLED) {
            self.kill("created")?;
        } else {
            // A random moment in the life of the guest is the point of the test.
            thread::sleep(Duration::from_millis(self.random.below(LONGEST_MS)));
        }
        self.note("deleted")?;
        self.delete(&name)?;
        if self.random.chance(KILLED) {
            self.kill("deleted")?;
        }
        self.tally.cycles += 1;
        Ok(())
    }

    fn kill(&mut self, what: &str) -> anyhow::Result<()> {
        self.note(&format!("killed after it was {what}"))?;
        let killed = kill_agent(self.machine, self.agent, &mut self.random, u32::MAX)?;
        self.tally.kills += killed.all;
        Ok(())
    }

    /// A guest whose VMM and link have ended by the time that an agent looks: all that is left of it are rules.
    fn kill_unseen(&mut self) -> anyhow::Result<()> {
        self.create("lost")?;
        self.agent.wait_for_phase("lost", "Running", PATIENCE)?;
        self.agent.kill()?;
        self.tally.kills += 1;
        let gone =
            "kill -9 $(pidof kvmlet-vmm); ! pidof kvmlet-vmm && ! ls /sys/class/net | grep kvp";
        self.machine.wait_for(gone, PATIENCE)?;
        self.agent.start()?;
        self.delete("lost")?;
        self.machine
            .wait_for("! kvmctl get vmi lost", PATIENCE)
            .map(drop)
    }

    fn note(&mut self, what: &str) -> anyhow::Result<()> {
        let stage = self
            .machine
            .sh("if ls /sys/class/net | grep -q kvp; then echo joined; \
             elif pidof kvmlet-vmm >/dev/null; then echo with a VMM; else echo without a VMM; fi")?;
        let moment = format!("{what}, {}", stage.trim());
        *self.tally.moments.entry(moment).or_default() += 1;
        Ok(())
    }

    /// Waits until the node is as it was.
    fn check(&mut self) -> anyhow::Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            let now = self.machine.sh(PICTURE)?;
            if now == self.before {
                self.tally.checks += 1;
                return Ok(());
            }
            ensure!(
                Instant::now() < until,
                "the node was\n{}\nand is\n{now}",
                self.before
            );
            // The state of the node's network is read as a whole; of its parts only some have events.
            thread::sleep(Duration::from_millis(500));
        }
    }

    /// As many guests of other names as there are addresses: each gets one, once those of guests that are gone are free. One of
    /// these has just gone, so not all can start at once; and each says why it waits.
    fn take_all_addresses(&mut self) -> anyhow::Result<()> {
        self.kill_unseen()?;
        let names: Vec<String> = (0..ADDRESSES)
            .map(|number| format!("other-{number}"))
            .collect();
        for name in &names {
            self.create(name)?;
        }
        let waits = format!(
            "kvmctl get vmi -o 'jsonpath={{range .items[*]}}{{.status.phase}} {{.status.conditions[?(@.type==\"PodScheduled\")]}}{{\"\\n\"}}{{end}}' | \
             grep '^Pending .*Unschedulable' | grep 'no free address: {ADDRESSES} of {ADDRESSES} addresses of {POOL} are taken'"
        );
        self.machine.wait_for(&waits, PATIENCE)?;
        for name in &names {
            self.agent.wait_for_phase(name, "Running", PATIENCE)?;
        }
        let mut addresses = Vec::new();
        for name in &names {
            let path = ".status.interfaces[0].ipAddress";
            addresses.push(self.agent.value(name, path)?);
        }
        addresses.sort();
        addresses.dedup();
        self.tally.addresses = addresses.len();
        ensure!(addresses.len() == ADDRESSES, "{addresses:?}");
        for name in &names {
            self.delete(name)?;
        }
        Ok(())
    }
}
