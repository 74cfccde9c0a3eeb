//! What docs/cpu-models.md promises of `/proc/cpuinfo`.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};

const PAGE: &str = include_str!("../../../docs/cpu-models.md");

/// Names in backquotes.
fn names(line: &'static str) -> impl Iterator<Item = &'static str> {
    line.split('`').skip(1).step_by(2)
}

/// A model as the page has it.
pub struct Documented {
    pub name: &'static str,
    pub features: BTreeSet<&'static str>,
    shown: BTreeSet<&'static str>,
}

/// All models of the page.
pub fn models() -> anyhow::Result<Vec<Documented>> {
    let (_, list) = PAGE.split_once("\n## Models\n").context("no models")?;
    let (list, _) = list.split_once("\n## ").context("no end of the models")?;
    let mut models = Vec::new();
    for text in list.split("\n### ").skip(1) {
        let line = |what: &str| {
            let line = text.lines().find(|line| line.starts_with(what));
            line.with_context(|| format!("no {what} in {text}"))
        };
        models.push(Documented {
            name: text.lines().next().unwrap_or_default(),
            features: names(line("- Features:")?).collect(),
            shown: names(line("- Shown by Linux:")?).collect(),
        });
    }
    Ok(models)
}

/// The flags of a row of the page's table of what Linux adds.
pub fn row(title: &str) -> anyhow::Result<BTreeSet<&'static str>> {
    let start = format!("| {title} |");
    let row = PAGE.lines().find(|line| line.starts_with(&start));
    let row = row.with_context(|| format!("no row {title}"))?;
    Ok(names(row.split('|').nth(2).unwrap_or_default()).collect())
}

impl Documented {
    /// Compares what a guest of this model shows with the page: these flags, those of `rows`, and no
    /// other; none of `without`. The node's CPU needs no mitigation that shows.
    pub fn check(&self, cpuinfo: &str, rows: &[&str], without: &[&str]) -> anyhow::Result<()> {
        let mut wanted = self.shown.clone();
        for title in rows {
            wanted.extend(row(title)?);
        }
        wanted.retain(|flag| !without.contains(flag));
        let mut processors = 0;
        for line in cpuinfo.lines().filter(|line| line.starts_with("flags")) {
            let flags = line.split_once(':').map_or("", |(_, flags)| flags);
            let flags: BTreeSet<&str> = flags.split_whitespace().collect();
            let missing: Vec<_> = wanted.difference(&flags).collect();
            let more: Vec<_> = flags.difference(&wanted).collect();
            ensure!(
                missing.is_empty() && more.is_empty(),
                "{}: not shown: {missing:?}; shown besides: {more:?}",
                self.name
            );
            processors += 1;
        }
        ensure!(processors > 0, "no flags in {cpuinfo}");
        Ok(())
    }
}
