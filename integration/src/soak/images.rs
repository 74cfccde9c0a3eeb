//! Images while things go wrong: the agent and the processes that pull, unpack and convert are killed at random
//! moments, and the power of a node is cut ([`cuts`]). Afterwards every disk that is kept is that of its digest, what there is of
//! layers is where the next pull goes on, and the next pull of every image succeeds.

pub mod cuts;
mod store;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::agent::{Agent, CONFIG};
use crate::cache;
use crate::commands::Commands;
use crate::image::container;
use crate::sim::Random;
use store::Store;

const REGISTRY: &str = "127.0.0.1:5001";
/// Images of a layout, with the tags 0 and so on.
const IMAGES: u64 = 4;
const DISK_BYTES: u64 = 8 << 20;
const NOISE_BYTES: u64 = 1 << 20;
/// Bytes a second of each connection: a pull takes most of a second.
const RATE: u64 = 12 << 20;
/// One pull, on a machine that has more to do.
const PATIENCE: Duration = Duration::from_secs(300);
/// A kill comes at most so long after a pull began, in milliseconds.
const LONGEST_MS: u64 = 1500;
/// All images are pulled to the end after so many kills.
const SETTLE_EVERY: u32 = 25;
/// How often in a hundred a child is killed, if there is one, and not the agent.
const OF_CHILDREN: u64 = 40;
/// How often in a hundred disks are removed at the same time.
const PRUNED: u64 = 25;
/// So full that disks are collected, and no pull fails: three images and what two pulls need.
const STORE_MIB: u64 = 72;

/// What is killed, and how often.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// From which moments and victims follow; the machine's own timing does not.
    pub seed: u64,
    /// Kills in all, those of earlier runs included.
    pub kills: u32,
}

/// The counts so far. A campaign that was interrupted goes on from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Something was killed.
    pub kills: u32,
    /// By victim, and what went on: `agent during pull`.
    pub moments: BTreeMap<String, u32>,
    /// Disks that were looked at, each that of its digest.
    pub disks: u64,
    /// Parts of layers that were looked at, each as long as it is what the layer begins with.
    pub parts: u64,
    /// Times that all images were pulled to the end.
    pub settled: u32,
}

/// Makes the images: `layout`, and `expected`, which has a line for each with the digits of its digest and of its disk's
/// SHA-256. They are everybody's, so nobody writes to them.
///
/// # Errors
/// When the cache cannot be written.
pub fn images() -> anyhow::Result<PathBuf> {
    let key = cache::key(&[b"images of the soak 1"]);
    cache::directory("soak-images", &key, |partial| {
        let noise = |seed: u64, bytes: u64| {
            let mut random = Random::new(seed);
            (0..bytes / 8)
                .flat_map(|_| random.next().to_le_bytes())
                .collect::<Vec<u8>>()
        };
        let tree = |name: &str, file: &str, content: &[u8]| -> anyhow::Result<PathBuf> {
            let path = partial.join(name).join(file);
            std::fs::create_dir_all(path.parent().context("no directory")?)?;
            std::fs::write(path, content)?;
            Ok(partial.join(name))
        };
        let shared = tree("shared", "noise", &noise(1000, NOISE_BYTES))?;
        let mut expected = String::new();
        for tag in 0..IMAGES {
            let disk = noise(tag, DISK_BYTES);
            let trees = [
                shared.clone(),
                tree(
                    &format!("own-{tag}"),
                    "noise",
                    &noise(2000 + tag, NOISE_BYTES),
                )?,
                tree(&format!("disk-{tag}"), "disk/disk.raw", &disk)?,
            ];
            let tag = tag.to_string();
            let digest = container::add_image(&trees, &partial.join("layout"), Some(&tag))?;
            let digits = digest.trim_start_matches("sha256:");
            let sum: String = Sha256::digest(&disk)
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            expected.push_str(&format!("{digits} {sum}\n"));
            for each in &trees[1..] {
                std::fs::remove_dir_all(each)?;
            }
        }
        std::fs::remove_dir_all(shared)?;
        Ok(std::fs::write(partial.join("expected"), expected)?)
    })
}

/// What an agent needs to pull these images. `source` is where the machine has them.
fn configure<M: Commands>(machine: &M) -> anyhow::Result<()> {
    let settings = format!("\n[registries.\"{REGISTRY}\"]\ninsecure = true\n");
    machine
        .sh(&format!("printf '%s' '{settings}' >>{CONFIG}"))
        .map(drop)
}

fn start_registry<M: Commands>(machine: &M, source: &str, rate: u64) -> anyhow::Result<()> {
    machine.sh(&format!(
        "mkdir -p /run/orders && echo {rate} >/run/orders/rate && \
         {{ setsid image-registry {REGISTRY} {source}/layout /run/orders </dev/null >/run/image-registry.log 2>&1 & }}"
    ))?;
    machine
        .wait_for("grep 'listens on' /run/image-registry.log", PATIENCE)
        .map(drop)
}

fn begin_pull<M: Commands>(machine: &M, tag: u64) -> anyhow::Result<()> {
    machine
        .sh(&format!(
            "setsid kvmctl image pull {REGISTRY}/vm/disk:{tag} --pull-policy Always </dev/null >/dev/null 2>&1 &"
        ))
        .map(drop)
}

/// Pulls every image to the end.
fn pull_all<M: Commands>(machine: &M) -> anyhow::Result<()> {
    for tag in 0..IMAGES {
        let pull = format!("kvmctl image pull {REGISTRY}/vm/disk:{tag}");
        let pulled = machine.run_for(&["sh", "-c", &pull], PATIENCE)?;
        ensure!(pulled.code == Some(0), "{pull}: {pulled}");
    }
    Ok(())
}

/// Runs what `before` has left of a campaign, on a machine that has the images at `source`, with an agent that is prepared
/// and not started. `progress` is called whenever all images were pulled to the end.
///
/// # Errors
/// At the first disk that is another, or pull that does not succeed; the error names the seed and how many kills
/// there had been. And when `progress` fails.
pub fn kills<M: Commands>(
    machine: &M,
    agent: &Agent<'_, M>,
    source: &str,
    campaign: Campaign,
    before: Tally,
    progress: &mut dyn FnMut(&Tally) -> anyhow::Result<()>,
) -> anyhow::Result<Tally> {
    configure(machine)?;
    start_registry(machine, source, RATE)?;
    let store = Store { machine, source };
    store.mount(STORE_MIB)?;
    agent.start()?;
    let mut run = Run {
        machine,
        agent,
        store,
        random: Random::new(campaign.seed),
        tally: before,
    };
    let done = run.all(campaign, progress);
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

struct Run<'a, M: Commands> {
    machine: &'a M,
    agent: &'a Agent<'a, M>,
    store: Store<'a, M>,
    random: Random,
    tally: Tally,
}

impl<M: Commands> Run<'_, M> {
    fn all(
        &mut self,
        campaign: Campaign,
        progress: &mut dyn FnMut(&Tally) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        while self.tally.kills < campaign.kills {
            let number = u64::from(self.tally.kills);
            self.random = Random::new(campaign.seed.wrapping_shl(32) ^ number);
            self.strike()?;
            let is_last = self.tally.kills >= campaign.kills;
            if is_last || self.tally.kills.is_multiple_of(SETTLE_EVERY) {
                self.settle()?;
                progress(&self.tally)?;
            }
        }
        Ok(())
    }

    fn strike(&mut self) -> anyhow::Result<()> {
        begin_pull(self.machine, self.random.below(IMAGES))?;
        // A random moment of the pull is the point of the test.
        thread::sleep(Duration::from_millis(self.random.below(LONGEST_MS)));
        let mut stage = self.store.stage()?;
        if self.random.chance(PRUNED) {
            let prune = "setsid kvmctl image prune </dev/null >/dev/null 2>&1 &";
            self.machine.sh(prune)?;
            // It is at it once it has found the agent.
            thread::sleep(Duration::from_millis(self.random.below(60)));
            stage.push_str(" and collection");
        }
        let is_child = self.random.chance(OF_CHILDREN) && self.store.kill_child()?;
        let victim = if is_child { "child" } else { "agent" };
        if !is_child {
            self.restart()?;
        }
        let moment = format!("{victim} during {stage}");
        *self.tally.moments.entry(moment).or_default() += 1;
        self.tally.kills += 1;
        self.check()
    }

    /// Pauses after failures end with the agent.
    fn restart(&self) -> anyhow::Result<()> {
        self.agent.kill()?;
        self.agent.start()
    }

    fn check(&mut self) -> anyhow::Result<()> {
        let found = self.store.check()?;
        self.tally.disks += found.disks;
        self.tally.parts += found.parts;
        Ok(())
    }

    fn settle(&mut self) -> anyhow::Result<()> {
        self.restart()?;
        pull_all(self.machine)?;
        self.tally.settled += 1;
        self.check()
    }
}
