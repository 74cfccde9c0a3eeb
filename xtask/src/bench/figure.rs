//! One measured figure and how figures are printed.

use std::path::Path;

use serde::Serialize;

use super::median::Spread;

/// Which way is better.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Better {
    /// A smaller value.
    Less,
    /// A larger value.
    More,
}

/// One line of the table, and one object of the JSON file.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Figure {
    name: String,
    value: f64,
    /// Both ends of the rounds of which `value` is the median.
    least: Option<f64>,
    most: Option<f64>,
    unit: &'static str,
    better: Better,
    budget: Option<f64>,
    goal: Option<f64>,
    how: String,
}

impl Figure {
    pub(super) fn new(name: &str, value: f64, unit: &'static str, better: Better) -> Self {
        Self {
            name: name.to_owned(),
            value,
            least: None,
            most: None,
            unit,
            better,
            budget: None,
            goal: None,
            how: String::new(),
        }
    }

    /// The median of many rounds, with both ends beside it.
    pub(super) fn of_rounds(
        name: &str,
        rounds: Spread,
        unit: &'static str,
        better: Better,
    ) -> Self {
        Self {
            least: Some(rounds.least),
            most: Some(rounds.most),
            ..Self::new(name, rounds.median, unit, better)
        }
    }

    /// What it must keep now, and what it is to reach.
    pub(super) fn budget(mut self, budget: f64, goal: f64) -> Self {
        self.budget = Some(budget);
        self.goal = Some(goal);
        self
    }

    /// As it is printed.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is as good as it must be now.
    pub(super) fn is_within_budget(&self) -> bool {
        self.budget.is_none_or(|budget| match self.better {
            Better::Less => self.value <= budget,
            Better::More => self.value >= budget,
        })
    }

    /// How it was measured, in a sentence.
    pub(super) fn how(mut self, how: &str) -> Self {
        how.clone_into(&mut self.how);
        self
    }
}

/// Writes the JSON file.
///
/// # Errors
/// When it cannot be written.
pub(super) fn write(figures: &[Figure], path: &Path) -> anyhow::Result<()> {
    std::fs::write(path, serde_json::to_string_pretty(figures)?)?;
    eprintln!("written: {}", path.display());
    Ok(())
}

/// Prints the table. Both ends of rounds have columns where there is a figure of rounds.
pub(super) fn print(figures: &[Figure]) {
    let has_ends = figures.iter().any(|figure| figure.least.is_some());
    let ends = |least: &str, most: &str| match has_ends {
        true => format!("  {least:>8} {most:>8}"),
        false => String::new(),
    };
    let width = figures
        .iter()
        .map(|figure| figure.name.len())
        .max()
        .unwrap_or_default();
    println!(
        "{:width$}  {:>10}{} {:8}  {:>8} {:>8}  {:6}",
        "FIGURE",
        "VALUE",
        ends("LEAST", "MOST"),
        "UNIT",
        "BUDGET",
        "GOAL",
        "BETTER"
    );
    for figure in figures {
        let optional =
            |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
        let end = |value: Option<f64>| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
        };
        let better = match figure.better {
            Better::Less => "less",
            Better::More => "more",
        };
        println!(
            "{:width$}  {:>10.2}{} {:8}  {:>8} {:>8}  {better:6}",
            figure.name,
            figure.value,
            ends(&end(figure.least), &end(figure.most)),
            figure.unit,
            optional(figure.budget),
            optional(figure.goal),
        );
    }
}
