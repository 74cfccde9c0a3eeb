//! Power cuts: a guest writes numbered blocks to disks of each cache mode, on a file system and on a block device,
//! and says which numbers are acknowledged. The node's disks forget what was not flushed when the power goes. After
//! each cut every acknowledged block must be there.

mod blocks;
mod setup;

use std::collections::BTreeMap;
use std::path::Path;
use std::thread::JoinHandle;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use super::journal;
use crate::commands::Commands;
use crate::node::Node;
use crate::sim::Random;
use crate::volatile_disk::{Content, Cut, Power};
use blocks::BLOCK_BYTES;
use setup::{DISKS, DiskBacking, DiskPlan, FILE_SYSTEM_BYTES, IMAGE_BYTES, PATIENCE};

/// A cut comes before the request after at most so many.
const LONGEST: u64 = 1000;
/// After a restart the guest's numbers go on above all that it may have written and not printed.
const NOT_YET_PROMISED: u64 = 64;
/// How many in a hundred of the sectors that were not flushed a cut leaves: one of these.
const LEFT_PERCENT: [u64; 3] = [0, 30, 70];

/// How many cuts to make, and with what choices.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// From which all choices follow. The moments also follow from the node's own timing.
    pub seed: u64,
    /// Cuts; each is one of every disk.
    pub cuts: u32,
    /// After so many cuts the node itself loses its power, and starts from what the last cut left.
    pub restart_every: u32,
}

/// The counts so far. A campaign that was interrupted goes on from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// The power was cut.
    pub cuts: u32,
    /// Of these, the node started again afterwards.
    pub restarts: u32,
    /// Acknowledged blocks that were looked for, and found.
    pub found: u64,
    /// Acknowledged blocks that were lost, on disks whose flushes go nowhere.
    pub lost: BTreeMap<String, u64>,
}

struct Run<'a> {
    power: &'a Power,
    node: Node,
    reader: Option<JoinHandle<()>>,
    scratch: tempfile::TempDir,
    campaign: Campaign,
    tally: Tally,
    /// Numbers that no disk was promised since the node started again, from the first to the last; of each disk by
    /// name.
    gaps: Vec<BTreeMap<&'static str, (u64, u64)>>,
}

/// Runs what is left of a campaign of which `tally` was done. `progress` is called after each cut.
///
/// # Errors
/// At the first acknowledged block that is lost, and when a control lost none: then the campaign shows nothing.
pub fn power_cuts(
    campaign: Campaign,
    tally: Tally,
    mut progress: impl FnMut(&Tally) -> anyhow::Result<()>,
) -> anyhow::Result<Tally> {
    let power = setup::disks()?;
    let node = setup::boot(&power)?;
    let reader = setup::start_guest(&node, &power, 1)?;
    let mut run = Run {
        power: &power,
        node,
        reader: Some(reader),
        scratch: tempfile::tempdir()?,
        campaign,
        tally,
        gaps: Vec::new(),
    };
    let mut kept = BTreeMap::new();
    while run.tally.cuts < campaign.cuts {
        let (seed, number) = (campaign.seed, run.tally.cuts);
        kept = run
            .cut(&kept)
            .with_context(|| format!("seed {seed}, cut {number}"))?;
        progress(&run.tally)?;
    }
    for control in DISKS.iter().filter(|disk| disk.is_control) {
        let lost = run.tally.lost.get(control.name);
        ensure!(
            lost.is_some_and(|lost| *lost > 0),
            "{}, whose flushes go nowhere, has lost nothing: such cuts show nothing",
            control.name
        );
    }
    Ok(run.tally)
}

impl Run<'_> {
    /// One cut of all disks, and a look at what it left. Gives what had been acknowledged.
    fn cut(&mut self, before: &BTreeMap<String, u64>) -> anyhow::Result<BTreeMap<String, u64>> {
        let mut random =
            Random::new(self.campaign.seed.wrapping_shl(32) ^ u64::from(self.tally.cuts));
        // Each disk has been promised something since the last cut.
        self.power.wait_for_numbers(before, PATIENCE)?;
        let cut = self.power.cut_after(random.below(LONGEST), PATIENCE)?;
        let index = usize::try_from(random.below(LEFT_PERCENT.len() as u64))?;
        let percent = LEFT_PERCENT[index];
        let mut left = BTreeMap::new();
        for plan in DISKS {
            let disk = cut.disks.get(plan.name).context("no such disk")?;
            let content = disk.remains(&mut random, percent);
            let kept = *cut.kept.get(plan.name).context("nothing was promised")?;
            self.check_disk(plan, &content, kept)
                .with_context(|| format!("{}, with {percent} % of the cache left", plan.name))?;
            left.insert(plan.name, content);
        }
        self.tally.cuts += 1;
        if self.tally.cuts.is_multiple_of(self.campaign.restart_every) {
            self.restart(&cut, left)?;
        }
        Ok(cut.kept)
    }

    fn check_disk(&mut self, plan: &DiskPlan, content: &Content, kept: u64) -> anyhow::Result<()> {
        let image;
        let image = match plan.place {
            DiskBacking::Device => content,
            DiskBacking::File => {
                image = replayed(content, self.scratch.path())?;
                &image
            }
        };
        self.check_blocks(plan, image, kept)
    }

    fn check_blocks(&mut self, plan: &DiskPlan, image: &Content, kept: u64) -> anyhow::Result<()> {
        let gaps = self.gaps.iter().filter_map(|gap| gap.get(plan.name));
        let was_promised = |number| {
            !gaps
                .clone()
                .any(|(first, last)| (*first..=*last).contains(&number))
        };
        let blocks = blocks::scan_blocks(image, IMAGE_BYTES / BLOCK_BYTES, kept, was_promised);
        if plan.is_control {
            *self.tally.lost.entry(plan.name.to_owned()).or_default() += blocks.lost;
            return Ok(());
        }
        ensure!(
            blocks.lost == 0,
            "{} of {} acknowledged blocks are lost, among them {}",
            blocks.lost,
            blocks.lost + blocks.found,
            blocks.first_lost
        );
        self.tally.found += blocks.found;
        Ok(())
    }

    /// The node loses its power and starts from what a cut left. Its kernel recovers the file systems, the
    /// acknowledged blocks are there, and the guest goes on.
    fn restart(&mut self, cut: &Cut, left: BTreeMap<&str, Content>) -> anyhow::Result<()> {
        self.node.power_cut();
        if let Some(reader) = self.reader.take() {
            reader.join().ok().context("the guest's reader panicked")?;
        }
        let last = self.power.return_with(cut, left)?;
        self.node.restart()?;
        setup::find_disks(&self.node)?;
        let mut gap = BTreeMap::new();
        let first = last + NOT_YET_PROMISED;
        for plan in DISKS {
            let kept = *cut.kept.get(plan.name).context("nothing was promised")?;
            if plan.place == DiskBacking::File {
                let image = Content::of_bytes(&self.node.get(&plan.path())?);
                self.check_blocks(plan, &image, kept)
                    .with_context(|| format!("{}, after the node's recovery", plan.name))?;
            }
            gap.insert(plan.name, (kept + 1, first - 1));
        }
        self.gaps.push(gap);
        self.reader = Some(setup::start_guest(&self.node, self.power, first)?);
        self.tally.restarts += 1;
        Ok(())
    }
}

/// The image on a file system of which a power cut left `content`: its journal is replayed first.
fn replayed(content: &Content, scratch: &Path) -> anyhow::Result<Content> {
    let (disk, image) = (scratch.join("ext4"), scratch.join("image"));
    journal::replay(content, &disk, FILE_SYSTEM_BYTES)?;
    journal::debugfs(
        &disk,
        &format!("dump /{} {}", setup::IMAGE, image.display()),
    )?;
    let content = Content::of_file(&image).context("the image is not on its file system")?;
    // The next one must not be taken for this one.
    std::fs::remove_file(&image)?;
    Ok(content)
}
