//! What each test took the last time, kept in the cache: it decides the order, never the outcome.

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

impl Costs {
    /// Those of earlier runs; none where there was no run, or where the file is damaged, which is logged.
    pub(super) fn load() -> Self {
        let path = path();
        let Ok(text) = fs::read_to_string(&path) else {
            return Self::default();
        };
        serde_json::from_str(&text).unwrap_or_else(|error| {
            eprintln!("{} is of no use: {error}", path.display());
            Self::default()
        })
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
