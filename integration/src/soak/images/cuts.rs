//! Power cuts of a node while it pulls, unpacks and collects images. Its store is on a disk that forgets what was not
//! flushed. After each cut every disk that is kept is that of its digest, whatever else is lost; a node that starts again
//! from what the cut left pulls all images to the end.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::super::journal;
use super::store::{STORE, Store};
use super::{IMAGES, PATIENCE, REGISTRY, configure, images, pull_all, start_registry};
use crate::agent::Agent;
use crate::commands::Commands;
use crate::image::ext4;
use crate::node::{Flavour, Node, NodeSpec};
use crate::sim::Random;
use crate::volatile_disk::{Content, Cut, Power};

/// Serial number of the node's disk with the store, and its size: four images and what a pull needs.
const DISK: &str = "images";
const DISK_MIB: u64 = 96;
/// Where the node has the images themselves.
const SOURCE: &str = "/opt/payload/images";
/// Bytes a second of each connection: an emulated node takes no more.
const RATE: u64 = 8 << 20;
/// How many in a hundred of the sectors that were not flushed a cut leaves: one of these.
const LEFT_PERCENT: [u64; 3] = [0, 30, 70];
/// Seconds for which the disk is left alone after the work, until its file system has committed by itself.
const COMMITS_WITHIN: u32 = 8;
/// By how many the times that work was over before it was seen may outnumber the cuts.
const MOST_LATE: u32 = 10;
/// Written when the work is done, with the exit code.
const DONE: &str = "/run/done";

/// Each is cut in turn: its name, how the command lines end of which one shows that it is under way, and the requests of the
/// disk among which the cut comes.
const STAGES: [(&str, &str, u64); 3] = [
    ("pull", "[p]ull-image$", 40),
    ("unpack", "([r]ead-layers|[c]onvert-image)$", 30),
    ("collection", "", 12),
];

/// What is cut, and how often.
#[derive(Clone, Copy, Debug)]
pub struct CutCampaign {
    /// From which images, moments and what is left follow; the machine's own timing does not.
    pub seed: u64,
    /// Cuts of each stage, those of earlier runs included.
    pub of_each: u32,
    /// After so many cuts the node starts again from what the last one left.
    pub restart_every: u32,
}

impl CutCampaign {
    /// Whether nothing is left of it.
    #[must_use]
    pub fn is_done(&self, tally: &CutTally) -> bool {
        tally.all() >= self.of_each.saturating_mul(3)
    }
}

/// The counts so far. A campaign that was interrupted goes on from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutTally {
    /// By stage.
    pub cuts: BTreeMap<String, u32>,
    /// Disks that cuts left, each that of its digest.
    pub disks: u64,
    /// Times that the work was over before it was seen under way, for which there was no cut.
    #[serde(default)]
    pub late: u32,
    /// Times that the node started again, and pulled all images to the end.
    pub restarts: u32,
}

impl CutTally {
    /// Cuts of all stages.
    #[must_use]
    pub fn all(&self) -> u32 {
        self.cuts.values().sum()
    }
}

struct Run {
    power: Power,
    node: Node,
    scratch: tempfile::TempDir,
    /// Digits of digests, each with the SHA-256 of its disk.
    expected: BTreeMap<String, String>,
    tally: CutTally,
}

/// Runs what `before` has left of a campaign, on a node of its own. `progress` is called after each cut.
///
/// # Errors
/// At the first disk that is not that of its digest, at the first image that cannot be pulled afterwards, and when `progress`
/// fails.
pub fn power_cuts(
    campaign: CutCampaign,
    before: CutTally,
    mut progress: impl FnMut(&CutTally) -> anyhow::Result<()>,
) -> anyhow::Result<CutTally> {
    let made = images()?;
    let expected = fs::read_to_string(made.join("expected"))?;
    let pair = |line: &str| line.split_once(' ').map(|(a, b)| (a.into(), b.into()));
    let power = Power::new(&[(DISK, DISK_MIB << 20)])?;
    let scratch = tempfile::tempdir()?;
    let empty = scratch.path().join("empty");
    ext4::make(&empty, DISK_MIB, None)?;
    power.fill(DISK, Content::of_file(&empty)?)?;
    let mut spec = NodeSpec::bare(Flavour::Busybox)
        .with_programs(&["kvmlet", "kvmlet-vmm", "kvmctl", "image-registry"])?
        .with(made, "images");
    spec.qemu_arguments.extend(power.qemu_arguments());
    let node = Node::boot(spec)?;
    mount(&node)?;
    let agent = Agent::prepare(&node)?;
    configure(&node)?;
    // The first cut may come before the node's own disk is written back.
    node.sh("sync")?;
    start_registry(&node, SOURCE, RATE)?;
    agent.start()?;
    let mut run = Run {
        power,
        node,
        scratch,
        expected: expected.lines().filter_map(pair).collect(),
        tally: before,
    };
    while !campaign.is_done(&run.tally) {
        let number = run.tally.all() + run.tally.late;
        run.cut(campaign, number).with_context(|| {
            let log = Agent::of(&run.node).log();
            format!("seed {}, cut {number}\n{log}", campaign.seed)
        })?;
        progress(&run.tally)?;
    }
    Ok(run.tally)
}

/// Finds the disk by its serial number and mounts it where the store is.
fn mount(node: &Node) -> anyhow::Result<()> {
    node.sh(&format!(
        "for disk in /sys/block/vd*; do test \"$(cat $disk/serial)\" = {DISK} || continue; \
         mkdir -p -m 0700 {STORE} && mount -t ext4 /dev/${{disk##*/}} {STORE} && chmod 0700 {STORE} && exit; done; exit 1"
    ))
    .map(drop)
}

/// Begins work that notes its end.
fn begin(node: &Node, command: &str) -> anyhow::Result<()> {
    node.sh(&format!(
        "rm -f {DONE}; {{ setsid sh -c '{command} >/run/said 2>&1; echo $? >{DONE}' </dev/null >/dev/null 2>&1 & }}"
    ))
    .map(drop)
}

impl Run {
    fn cut(&mut self, campaign: CutCampaign, number: u32) -> anyhow::Result<()> {
        let mut random = Random::new(campaign.seed.wrapping_shl(32) ^ u64::from(number));
        let stage = usize::try_from(self.tally.all())? % STAGES.len();
        let (name, process, most) = STAGES[stage];
        if name == "collection" {
            pull_all(&self.node)?;
            self.node.sh("sync")?;
            begin(&self.node, "kvmctl image prune")?;
        } else {
            self.node.wait_for("kvmctl image prune", PATIENCE)?;
            let tag = random.below(IMAGES);
            begin(
                &self.node,
                &format!("kvmctl image pull {REGISTRY}/vm/disk:{tag} --pull-policy Always"),
            )?;
            // Debian's static busybox has no pgrep.
            let wait = format!(
                "until ps -o args | grep -Eq '{process}'; do test -e {DONE} && exit 1; done; exit 0"
            );
            let seen = self.node.run_for(&["sh", "-c", &wait], PATIENCE)?;
            if seen.code != Some(0) {
                self.tally.late += 1;
                ensure!(
                    self.tally.late <= self.tally.all() + MOST_LATE,
                    "{name} is over before it is seen: {seen}"
                );
                return Ok(());
            }
        }
        let cut = self.picture(random.below(most))?;
        let said = self.node.sh(&format!("cat {DONE} /run/said"))?;
        ensure!(said.starts_with("0\n"), "the work came to nothing: {said}");
        let percent = LEFT_PERCENT[usize::try_from(random.below(LEFT_PERCENT.len() as u64))?];
        let disk = cut.disks.get(DISK).context("no such disk")?;
        let content = disk.remains(&mut random, percent);
        self.check(&content)
            .with_context(|| format!("{name}, with {percent} % of the cache left"))?;
        *self.tally.cuts.entry(name.to_owned()).or_default() += 1;
        if self.tally.all().is_multiple_of(campaign.restart_every) {
            // As a node does at its start: a superblock of which one sector is old has another checksum, and is not mounted.
            let mended = Content::of_file(&self.disk())?;
            self.restart(&cut, mended)
                .with_context(|| format!("started again after a cut during {name}"))?;
        }
        Ok(())
    }

    /// The disk at the moment before one of its requests, while the work goes on to its end.
    fn picture(&self, requests: u64) -> anyhow::Result<Cut> {
        thread::scope(|scope| {
            let cutting = scope.spawn(|| self.power.cut_after(requests, PATIENCE));
            self.node.wait_for(&format!("test -e {DONE}"), PATIENCE)?;
            let mut seconds = 0;
            while !cutting.is_finished() {
                if seconds >= COMMITS_WITHIN {
                    self.node.sh(&format!("date >{STORE}/tick && sync"))?;
                } else {
                    // Counts seconds until the disk is to be written to, so that requests come to cut the power at.
                    thread::sleep(Duration::from_secs(1));
                }
                seconds += 1;
            }
            cutting.join().ok().context("the disk's server panicked")?
        })
    }

    /// The file system that the last cut left, checked and mended.
    fn disk(&self) -> PathBuf {
        self.scratch.path().join("ext4")
    }

    /// Every disk that has a name is whole and that of its digest, and every name of an image means one of them.
    fn check(&mut self, content: &Content) -> anyhow::Result<()> {
        let (disk, tree) = (self.disk(), self.scratch.path().join("tree"));
        journal::replay(content, &disk, DISK_MIB << 20)?;
        if tree.exists() {
            fs::remove_dir_all(&tree)?;
        }
        fs::create_dir(&tree)?;
        for directory in ["sha256", "names"] {
            journal::debugfs(&disk, &format!("rdump /{directory} {}", tree.display()))?;
        }
        for path in files(&tree.join("sha256"))? {
            if path.extension().is_none_or(|extension| extension != "raw") {
                continue;
            }
            let digits = path.file_stem().unwrap_or_default().to_string_lossy();
            let found = Sha256::digest(fs::read(&path)?);
            let found: String = found.iter().map(|byte| format!("{byte:02x}")).collect();
            let expected = self.expected.get(digits.as_ref());
            ensure!(
                expected == Some(&found),
                "under {digits} is another disk: {found}, {} bytes",
                path.metadata()?.len()
            );
            self.tally.disks += 1;
        }
        for path in files(&tree.join("names"))? {
            let text = fs::read(&path)?;
            let text = String::from_utf8_lossy(&text);
            let digest = text.lines().next().unwrap_or_default();
            let is_known = |digest: &str| self.expected.contains_key(digest);
            // A power cut may leave one that is empty, or of zeros: it says nothing.
            let says_nothing = digest.trim_matches('\0').is_empty();
            let is_draft = path.extension().is_some();
            ensure!(
                is_draft || says_nothing || digest.strip_prefix("sha256:").is_some_and(is_known),
                "a name of an image means {digest:?}"
            );
        }
        Ok(())
    }

    /// The node loses its power and starts from what a cut left, its file system mended.
    fn restart(&mut self, cut: &Cut, content: Content) -> anyhow::Result<()> {
        self.node.power_cut();
        self.power
            .return_with(cut, BTreeMap::from([(DISK, content)]))?;
        self.node.restart()?;
        mount(&self.node)?;
        Agent::make_bridge(&self.node)?;
        start_registry(&self.node, SOURCE, RATE)?;
        Agent::of(&self.node).start()?;
        pull_all(&self.node)?;
        let store = Store {
            machine: &self.node,
            source: SOURCE,
        };
        let found = store.check()?;
        ensure!(
            found.disks == IMAGES && found.parts == 0,
            "{} disks and {} parts of layers are kept",
            found.disks,
            found.parts
        );
        self.tally.restarts += 1;
        Ok(())
    }
}

/// The files of a directory, which may not be there.
fn files(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    entries.map(|entry| Ok(entry?.path())).collect()
}
