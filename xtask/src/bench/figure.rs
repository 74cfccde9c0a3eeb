//! One measured figure and how figures are printed.

use std::path::Path;

use serde::Serialize;

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
            unit,
            better,
            budget: None,
            goal: None,
            how: String::new(),
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

/// Prints the table.
pub(super) fn print(figures: &[Figure]) {
    let width = figures
        .iter()
        .map(|figure| figure.name.len())
        .max()
        .unwrap_or_default();
    println!(
        "{:width$}  {:>10} {:8}  {:>8} {:>8}  {:6}",
        "FIGURE", "VALUE", "UNIT", "BUDGET", "GOAL", "BETTER"
    );
    for figure in figures {
        let optional =
            |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
        let better = match figure.better {
            Better::Less => "less",
            Better::More => "more",
        };
        println!(
            "{:width$}  {:>10.2} {:8}  {:>8} {:>8}  {better:6}",
            figure.name,
            figure.value,
            figure.unit,
            optional(figure.budget),
            optional(figure.goal),
        );
    }
}
