//! `cargo xtask soak fuzz`: a campaign on all fuzz targets, in slices, that goes on where it ended.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use integration::cache;
use serde::{Deserialize, Serialize};

use crate::fuzz::corpora::Corpora;
use crate::fuzz::guided::{Guided, Slice};

/// How long it goes on.
#[derive(clap::Args)]
pub struct FuzzOptions {
    /// Hours of processor time over all targets, those of earlier runs included.
    #[arg(long, default_value_t = 2.0)]
    hours: f64,
    /// Seconds until the next target has its turn; what an interrupted slice has counted is lost, what it
    /// has found is not.
    #[arg(long, default_value_t = 60)]
    slice: u64,
    /// Takes vmm-libfuzzer and vmm-fuzz as they are in this directory, and builds nothing.
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// At the end, minimises the corpora and packs them into vmm/fuzz/corpus.
    #[arg(long)]
    keep: bool,
}

/// A target's counts so far.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Tally {
    executions: u64,
    edges: u64,
    features: u64,
    corpus: usize,
    processor_time: Duration,
    findings: Vec<String>,
}

type Tallies = BTreeMap<String, Tally>;

/// Feeds the targets in turn, and prints the counts.
///
/// # Errors
/// A program failed, or a target cannot be built or run.
pub fn run(root: &Path, options: &FuzzOptions) -> anyhow::Result<()> {
    let (guided, by_chance) = match &options.programs {
        Some(directory) => (Guided::at(directory)?, directory.join("vmm-fuzz")),
        None => (Guided::build(root)?, crate::fuzz::built(root)?),
    };
    let targets = crate::fuzz::names(&by_chance)?;
    let _held = cache::lock("fuzz")?;
    let directory = cache::root().join("soak/fuzz");
    let corpora = Corpora::new(root, directory.clone());
    for target in &targets {
        corpora.begin(target)?;
    }
    let file = directory.join("tallies.json");
    let mut tallies = read(&file)?;
    for target in &targets {
        tallies.entry(target.clone()).or_default();
    }
    let wanted = Duration::try_from_secs_f64(options.hours * 3600.0).context("--hours")?;
    while let Some(target) = next(&tallies, wanted) {
        let slice = guided.feed(&target, &corpora, Duration::from_secs(options.slice))?;
        eprintln!("    {target}: {slice}");
        if let Some(tally) = tallies.get_mut(&target) {
            tally.add(slice);
        }
        write(&file, &tallies)?;
    }
    print(&tallies);
    if options.keep {
        for target in &targets {
            let (count, bytes) = corpora.keep(target, guided.minimise(target, &corpora)?.path())?;
            println!("{target}: {count} programs kept, {bytes} bytes packed");
        }
    }
    let findings: Vec<&str> = tallies
        .values()
        .flat_map(|tally| tally.findings.iter().map(String::as_str))
        .collect();
    anyhow::ensure!(findings.is_empty(), "findings: {}", findings.join(", "));
    Ok(())
}

impl Tally {
    fn add(&mut self, slice: Slice) {
        self.executions += slice.executions;
        self.edges = self.edges.max(slice.edges);
        self.features = self.features.max(slice.features);
        self.corpus = slice.corpus;
        // A slice that ended at once would have its turn for ever.
        self.processor_time += slice.processor_time.max(Duration::from_secs(1));
        self.findings.extend(slice.finding);
    }
}

/// The target that has had the least time; none when all together have had what is wanted.
fn next(tallies: &Tallies, wanted: Duration) -> Option<String> {
    let spent: Duration = tallies.values().map(|tally| tally.processor_time).sum();
    let least = tallies.iter().min_by_key(|(_, tally)| tally.processor_time);
    least
        .filter(|_| spent < wanted)
        .map(|(target, _)| target.clone())
}

fn print(tallies: &Tallies) {
    println!("| Target | Executions | Processor time | Edges | Features | Corpus | Findings |");
    println!("|---|---|---|---|---|---|---|");
    let mut executions = 0;
    let mut spent = Duration::ZERO;
    for (target, tally) in tallies {
        executions += tally.executions;
        spent += tally.processor_time;
        println!(
            "| `{target}` | {} | {} s | {} | {} | {} | {} |",
            tally.executions,
            tally.processor_time.as_secs(),
            tally.edges,
            tally.features,
            tally.corpus,
            tally.findings.len()
        );
    }
    println!(
        "{executions} executions in {} s of processor time",
        spent.as_secs()
    );
}

fn read(file: &Path) -> anyhow::Result<Tallies> {
    match fs::read(file) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .with_context(|| format!("{} is no progress of a campaign; remove it", file.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Tallies::new()),
        Err(error) => Err(error).with_context(|| file.display().to_string()),
    }
}

/// A run that is interrupted leaves the old file or the new one.
fn write(file: &Path, tallies: &Tallies) -> anyhow::Result<()> {
    let partial = file.with_extension("partial");
    fs::write(&partial, serde_json::to_vec(tallies)?)
        .and_then(|()| fs::rename(&partial, file))
        .with_context(|| file.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_has_its_turn_until_all_together_had_their_time() {
        let slice = |executions, seconds| Slice {
            executions,
            edges: 7,
            processor_time: Duration::from_secs(seconds),
            ..Slice::default()
        };
        let mut tallies = Tallies::new();
        for target in ["a", "b"] {
            tallies.insert(target.to_owned(), Tally::default());
        }
        let wanted = Duration::from_secs(10);
        let mut turns = Vec::new();
        while let Some(target) = next(&tallies, wanted) {
            tallies.get_mut(&target).unwrap().add(slice(5, 4));
            turns.push(target);
        }
        assert_eq!(turns, ["a", "b", "a"]);
        let file = tempfile::NamedTempFile::new().unwrap();
        write(file.path(), &tallies).unwrap();
        let resumed = read(file.path()).unwrap();
        assert_eq!(resumed["a"].executions, 10);
        assert_eq!(next(&resumed, wanted), None);
        assert_eq!(
            next(&resumed, Duration::from_secs(20)).as_deref(),
            Some("b")
        );
        // A target that cannot run does not stop the others.
        tallies.get_mut("b").unwrap().add(slice(0, 0));
        assert_eq!(tallies["b"].processor_time, Duration::from_secs(5));
    }
}
