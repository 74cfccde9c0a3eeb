//! `cargo xtask fuzz`: campaigns on the fuzz targets of `vmm/fuzz`.
//!
//! Where a C++ compiler can build libFuzzer they are guided by coverage; without, programs are made by
//! chance of those in the corpus. What fails is kept as a file, and named.

pub(crate) mod corpora;
pub(crate) mod guided;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use integration::process::{self, cargo};
use integration::{artifacts, cache, tools};

use self::corpora::Corpora;
use self::guided::Guided;

/// What to feed, and for how long.
#[derive(clap::Args)]
pub struct FuzzOptions {
    /// One target; all of them, one after another, when it is left out.
    target: Option<String>,
    /// How long each is fed.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The same seed makes the same programs, where coverage does not guide them.
    #[arg(long, default_value_t = 1)]
    seed: u32,
    /// Makes programs by chance even where coverage could guide them.
    #[arg(long)]
    stable: bool,
}

/// Feeds the targets.
///
/// # Errors
/// A program failed, or the targets cannot be built.
pub fn run(root: &Path, options: &FuzzOptions) -> anyhow::Result<()> {
    let program = built(root)?;
    if options.stable || !tools::is_there("c++") {
        println!("not guided by coverage: programs by chance");
        return process::stream(&mut by_chance(root, &program, options));
    }
    let targets = match &options.target {
        Some(target) => vec![target.clone()],
        None => names(&program)?,
    };
    let guided = Guided::build(root)?;
    let corpora = Corpora::new(root, cache::root().join("fuzz"));
    let mut failed = Vec::new();
    for target in targets {
        corpora.begin(&target)?;
        let slice = guided.feed(&target, &corpora, Duration::from_secs(options.seconds))?;
        println!("{target}: {slice}");
        failed.extend(slice.finding);
    }
    anyhow::ensure!(failed.is_empty(), "findings: {}", failed.join(", "));
    Ok(())
}

/// Builds the program that runs targets without libFuzzer. Of one package alone cargo would build
/// dependencies with the features that this one wants, so all over again.
pub(crate) fn built(root: &Path) -> anyhow::Result<PathBuf> {
    let mut command = cargo(root);
    command.args(["build", "--profile", &artifacts::profile()?]);
    command.args(["--quiet", "--workspace"]);
    process::stream(command.args(["--bin", "vmm-fuzz"]))?;
    artifacts::program("vmm-fuzz")
}

/// Names of all targets.
pub(crate) fn names(program: &Path) -> anyhow::Result<Vec<String>> {
    let listed = process::output(Command::new(program).arg("--list")).context("the targets")?;
    Ok(listed.lines().map(str::to_owned).collect())
}

fn by_chance(root: &Path, program: &Path, options: &FuzzOptions) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root).args(&options.target);
    command.args(["--seconds", &options.seconds.to_string()]);
    command.args(["--seed", &options.seed.to_string()]);
    command
}

/// Checks that libFuzzer's program compiles. libFuzzer itself, which takes a C++ compiler, is left out.
///
/// # Errors
/// It does not.
pub fn check(root: &Path) -> anyhow::Result<()> {
    guided::share_versions(root)?;
    // That of the workspace: what clippy has checked of dependencies with the same features serves here.
    let artifacts = artifacts::directory()?;
    let target = artifacts.ancestors().nth(2).context("a target directory")?;
    let mut command = cargo(&root.join(guided::LIBFUZZER));
    command.args(["check", "--profile", &artifacts::profile()?, "--quiet"]);
    command.args(["--no-default-features", "--bins"]);
    process::stream(command.arg("--target-dir").arg(target))
}
