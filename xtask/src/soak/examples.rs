//! `cargo xtask soak examples`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, ensure};
use integration::soak::examples::{self, Example, Outcome};
use integration::{skip, tools};

use crate::progress::step;

/// Manifests of a campaign.
#[derive(clap::Args)]
pub struct ExamplesOptions {
    /// Directory of manifests, such as KubeVirt's examples; those with a containerDisk or with data for cloud-init count.
    directory: PathBuf,
    /// Only files whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
}

/// Applies each on a node, and prints a row for each.
///
/// # Errors
/// When a manifest that is taken does not run.
pub(super) fn run(root: &Path, options: &ExamplesOptions) -> anyhow::Result<()> {
    if let Some(reason) = skip::without_node() {
        anyhow::bail!("SKIPPED, {reason}");
    }
    tools::ensure(tools::FIRMWARE)?;
    step("build", || crate::build::run(root))?;
    let disk = crate::images::cloud()?;
    let examples = manifests(options)?;
    ensure!(!examples.is_empty(), "no such manifest");
    let (mut runs, mut refused, mut fails) = (0, 0, 0);
    step("manifests in a node", || {
        let mut since = Instant::now();
        examples::run(&examples, &disk, &mut |example, outcome| {
            match outcome {
                Outcome::Runs(_) => runs += 1,
                Outcome::Refused(_) => refused += 1,
                Outcome::Fails(_) => fails += 1,
            }
            let seconds = since.elapsed().as_secs();
            println!("{} | {outcome} | {seconds} s", example.file);
            since = Instant::now();
        })
    })?;
    println!("{runs} run, {refused} are refused, {fails} do not run");
    ensure!(fails == 0, "{fails} manifests that are taken do not run");
    Ok(())
}

fn manifests(options: &ExamplesOptions) -> anyhow::Result<Vec<Example>> {
    let directory = &options.directory;
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut paths = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<anyhow::Result<Vec<PathBuf>>>()?;
    paths.sort();
    let mut examples = Vec::new();
    for path in paths {
        let file = path.file_name().unwrap_or_default();
        let file = file.to_string_lossy().into_owned();
        if !file.ends_with(".yaml") || !file.contains(&options.only) {
            continue;
        }
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let example = Example { file, text };
        if example.has_image_or_seed() {
            examples.push(example);
        }
    }
    Ok(examples)
}
