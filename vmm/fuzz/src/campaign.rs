//! Many programs for one target: its corpus, then others made of it, until a count or a time is over.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::mutate::{Chance, program};
use crate::targets::Target;

/// A program that takes longer is a finding: it hangs, or nearly so.
const HANG: Duration = Duration::from_secs(30);
/// A campaign ends after so many.
const MAX_FINDINGS: usize = 10;

/// How long a campaign goes on.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// So many programs beyond the corpus.
    Programs(u64),
    /// Until this much wall-clock time has passed.
    Time(Duration),
}

/// A program that the target did not stand.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The panic, or how the process ended.
    pub what: String,
    /// Input that reproduces it.
    pub program: Vec<u8>,
}

/// The result of a campaign.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Programs run.
    pub executions: u64,
    /// Those that failed.
    pub findings: Vec<Finding>,
}

/// The programs that are kept for `target`, by name.
#[must_use]
pub fn corpus(target: Target) -> Vec<Vec<u8>> {
    let mut files: Vec<PathBuf> = fs::read_dir(corpus_directory(target))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    files.sort();
    files
        .iter()
        .filter_map(|path| fs::read(path).ok())
        .collect()
}

/// Directory of the target's corpus.
#[must_use]
pub fn corpus_directory(target: Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target.name)
}

/// Runs the corpus of `target` and then programs by chance, the same for the same `seed`.
#[must_use]
pub fn run(target: Target, seed: u64, limit: Limit) -> Outcome {
    let corpus = corpus(target);
    let mut outcome = Outcome::default();
    for program in &corpus {
        one(target, program, &mut outcome);
    }
    let mut chance = Chance::new(seed);
    let start = Instant::now();
    let mut made = 0;
    while outcome.findings.len() < MAX_FINDINGS {
        let is_over = match limit {
            Limit::Programs(count) => made >= count,
            Limit::Time(time) => start.elapsed() >= time,
        };
        if is_over {
            break;
        }
        made += 1;
        one(target, &program(&corpus, &mut chance), &mut outcome);
    }
    outcome
}

fn one(target: Target, program: &[u8], outcome: &mut Outcome) {
    outcome.executions += 1;
    let start = Instant::now();
    // A target keeps nothing from one program to the next that a panic could leave half done.
    let result = catch_unwind(AssertUnwindSafe(|| (target.run)(program)));
    let taken = start.elapsed();
    let what = match result {
        Err(panic) => text(&*panic),
        Ok(()) if taken > HANG => format!("took {taken:?}"),
        Ok(()) => return,
    };
    outcome.findings.push(Finding {
        what,
        program: program.to_vec(),
    });
}

fn text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|| "a panic".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_is_found_with_its_cause_and_ends_the_campaign_in_time() {
        let target = Target {
            name: "none",
            run: |bytes| assert!(!bytes.contains(&0xff), "a byte that is not liked"),
        };
        let outcome = run(target, 1, Limit::Programs(10_000));
        assert_eq!(outcome.findings.len(), MAX_FINDINGS);
        assert!(outcome.executions < 10_000);
        for finding in outcome.findings {
            assert_eq!(finding.what, "a byte that is not liked");
            assert!(finding.program.contains(&0xff));
        }
    }
}
