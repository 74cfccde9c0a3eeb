//! `cargo xtask fuzz`: campaigns on the fuzz targets of `vmm/fuzz`.
//!
//! With cargo-fuzz on a nightly toolchain they are guided by coverage; without, programs are made by
//! chance of those in the corpus. What fails is kept as a file, and named.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;
use integration::artifacts;
use integration::process::{self, cargo};

/// Where libFuzzer's programs are, below the root of the clone.
const LIBFUZZER: &str = "vmm/fuzz/libfuzzer";
/// Longest program, as on stable.
const MAX_BYTES: u32 = 4096;

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
    /// Does without cargo-fuzz even if it is there.
    #[arg(long)]
    stable: bool,
}

/// Feeds the targets.
///
/// # Errors
/// A program failed, or the targets can not be built.
pub fn run(root: &Path, options: &FuzzOptions) -> anyhow::Result<()> {
    let program = built(root)?;
    if options.stable || !has_cargo_fuzz(root) {
        println!("without cargo-fuzz on nightly: programs by chance");
        return process::stream(&mut by_chance(root, &program, options));
    }
    let targets = match &options.target {
        Some(target) => vec![target.clone()],
        None => names(&program)?,
    };
    share_versions(root)?;
    let mut failed = Vec::new();
    for target in targets {
        println!("=== {target}");
        if process::stream(&mut guided(root, options, &target)).is_err() {
            failed.push(target);
        }
    }
    anyhow::ensure!(failed.is_empty(), "findings: {}", failed.join(", "));
    Ok(())
}

fn nightly(root: &Path) -> Command {
    let mut command = Command::new("cargo");
    // This program runs under a stable cargo, whose choice of a toolchain is not that of its child.
    command
        .current_dir(root)
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO")
        .args(["+nightly", "fuzz"]);
    command
}

fn has_cargo_fuzz(root: &Path) -> bool {
    let mut command = nightly(root);
    let asked = command.arg("--version");
    let status = asked.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Builds the program that runs targets on stable. Of one package alone cargo would build dependencies
/// with the features that this one wants, so all over again.
fn built(root: &Path) -> anyhow::Result<PathBuf> {
    let mut command = cargo(root);
    command.args(["build", "--release", "--quiet", "--workspace"]);
    process::stream(command.args(["--bin", "vmm-fuzz"]))?;
    artifacts::program("vmm-fuzz")
}

fn names(program: &Path) -> anyhow::Result<Vec<String>> {
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

/// libFuzzer's programs are a workspace of their own, with the versions of this one.
fn share_versions(root: &Path) -> anyhow::Result<()> {
    let lock = root.join(LIBFUZZER).join("Cargo.lock");
    fs::copy(root.join("Cargo.lock"), &lock).with_context(|| lock.display().to_string())?;
    Ok(())
}

/// Checks that libFuzzer's programs compile. libFuzzer itself, which takes a nightly toolchain and a
/// C++ compiler, is left out.
///
/// # Errors
/// They do not.
pub fn check(root: &Path) -> anyhow::Result<()> {
    share_versions(root)?;
    // That of the workspace: what clippy has checked of dependencies with the same features serves here.
    let artifacts = artifacts::directory()?;
    let target = artifacts.ancestors().nth(2).context("a target directory")?;
    let mut command = cargo(&root.join(LIBFUZZER));
    command.args(["check", "--release", "--quiet"]);
    command.args(["--no-default-features", "--bins"]);
    process::stream(command.arg("--target-dir").arg(target))
}

/// New programs go to a corpus of libFuzzer's own; the kept one only begins it.
fn guided(root: &Path, options: &FuzzOptions, target: &str) -> Command {
    let mut command = nightly(root);
    command.args(["run", "--fuzz-dir", LIBFUZZER, target]);
    command.arg(format!("{LIBFUZZER}/corpus/{target}"));
    command.arg(format!("vmm/fuzz/corpus/{target}"));
    command.arg("--");
    command.arg(format!("-max_total_time={}", options.seconds));
    command.arg(format!("-max_len={MAX_BYTES}"));
    command.args(["-timeout=10", "-print_final_stats=1"]);
    command
}
