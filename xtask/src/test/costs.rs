//! What each test took in earlier runs: it decides the order, never the outcome.
//!
//! The cache has it of this machine. `costs.json` has it of tests that take five seconds or more on a machine of two cores, so that
//! a machine without a cache knows which of them wait and which compute.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use integration::cache;
use serde::{Deserialize, Serialize};

use super::result::{Cost, TestOutcome, TestResult};

/// What tests took, by name.
#[derive(Default, Deserialize, Serialize)]
pub(super) struct Costs(BTreeMap<String, Cost>);

fn path() -> PathBuf {
    cache::root().join("test-costs.json")
}

/// Of the tests that take longest, on another machine.
const ELSEWHERE: &str = include_str!("costs.json");

impl Costs {
    /// Those of earlier runs, and of another machine where there was no run, or where the file is damaged, which is reported.
    pub(super) fn load() -> Self {
        let path = path();
        let here = fs::read_to_string(&path).map_or_else(
            |_| Self::default(),
            |text| {
                Self::parse(&text).unwrap_or_else(|error| {
                    eprintln!("{} is of no use: {error}", path.display());
                    Self::default()
                })
            },
        );
        let mut costs = Self::parse(ELSEWHERE).unwrap_or_default();
        costs.0.extend(here.0);
        costs
    }

    fn parse(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    pub(super) fn of(&self, name: &str) -> Option<Cost> {
        self.0.get(name).copied()
    }

    /// Takes over what the tests that passed have taken now, of several runs the shortest: a test that had to wait for CPUs
    /// looks like one that needs few.
    pub(super) fn learn(&mut self, results: &[TestResult]) {
        for result in results {
            if matches!(result.outcome, TestOutcome::Passed) {
                let cost = self.0.entry(result.name.clone()).or_insert(result.cost);
                if result.cost.seconds < cost.seconds {
                    *cost = result.cost;
                }
            }
        }
    }

    /// # Errors
    /// When the cache cannot be written.
    pub(super) fn save(&self) -> anyhow::Result<()> {
        let path = path();
        let draft = path.with_extension("draft");
        fs::write(&draft, serde_json::to_string(self)?)
            .and_then(|()| fs::rename(&draft, &path))
            .with_context(|| format!("{} cannot be written", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_another_machine_is_of_the_tests_that_take_longest() {
        let costs = Costs::parse(ELSEWHERE).expect("is as the cache has it");
        assert!(costs.0.len() > 50);
        assert!(costs.0.values().all(|cost| cost.seconds >= 5.0));
    }
}
