//! libFuzzer's program: built with instrumentation, run on one target for a while.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use integration::artifacts;
use integration::process::{self, cargo};
use nix::sys::resource::{UsageWho, getrusage};
use tempfile::TempDir;

use super::corpora::Corpora;
use crate::progress::step;

/// The program's package, below the root of the clone.
pub(super) const LIBFUZZER: &str = "vmm/fuzz/libfuzzer";
const PROGRAM: &str = "vmm-libfuzzer";

/// Longest program, as `vmm-fuzz` makes them.
const MAX_BYTES: u32 = 4096;
/// A program that takes longer is a finding.
const HANG_SECONDS: u32 = 30;

/// What libFuzzer wants to know of a run: counters of edges with their addresses, and operands of
/// comparisons. `sancov-module` is LLVM's pass, which a stable rustc runs as well.
const COVERAGE: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cdebug-assertions",
    "-Coverflow-checks",
];

/// The built program.
pub(crate) struct Guided {
    program: PathBuf,
}

/// The result of feeding one target for a while.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slice {
    pub(crate) executions: u64,
    /// Edges of the control flow that its corpus reaches.
    pub(crate) edges: u64,
    /// Edges with how often they are passed, and comparisons.
    pub(crate) features: u64,
    pub(crate) corpus: usize,
    pub(crate) processor_time: Duration,
    /// The file of the program that failed.
    pub(crate) finding: Option<String>,
}

impl fmt::Display for Slice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            executions,
            edges,
            features,
            corpus,
            processor_time,
            finding,
        } = self;
        write!(
            out,
            "{executions} executions in {} s of processor time, {edges} edges, {features} features, {corpus} programs kept",
            processor_time.as_secs()
        )?;
        match finding {
            Some(file) => write!(out, ", FINDING {file}"),
            None => Ok(()),
        }
    }
}

impl Guided {
    /// Builds it: on a nightly toolchain, if there is one, with AddressSanitizer.
    pub(crate) fn build(root: &Path) -> anyhow::Result<Self> {
        share_versions(root)?;
        let target = artifacts::directory()?.join("libfuzzer");
        let mut flags = COVERAGE.join(" ");
        let mut command = if has_nightly() {
            flags.push_str(" -Zsanitizer=address");
            let mut command = Command::new("cargo");
            // The cargo that runs this program has chosen a toolchain for its children.
            command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
            command.arg("+nightly");
            command
        } else {
            cargo(root)
        };
        command
            .current_dir(root.join(LIBFUZZER))
            .env("RUSTFLAGS", flags)
            .args(["build", "--release", "--quiet", "--target"])
            .arg("x86_64-unknown-linux-gnu")
            .arg("--target-dir")
            .arg(&target);
        step("libFuzzer's program", || process::stream(&mut command))?;
        Self::at(&target.join("x86_64-unknown-linux-gnu/release"))
    }

    /// One that was built before and copied to `directory`.
    pub(crate) fn at(directory: &Path) -> anyhow::Result<Self> {
        let program = directory.join(PROGRAM);
        anyhow::ensure!(program.is_file(), "{} is missing", program.display());
        Ok(Self { program })
    }

    /// Feeds one target for so long. What it finds worth keeping goes to the target's corpus.
    pub(crate) fn feed(
        &self,
        target: &str,
        corpora: &Corpora,
        time: Duration,
    ) -> anyhow::Result<Slice> {
        let corpus = corpora.grown(target);
        let findings = corpora.findings();
        fs::create_dir_all(&findings)?;
        let log = corpora.log(target);
        let before = processor_time()?;
        let status = self
            .command(target)
            .arg(&corpus)
            .arg(format!("-max_total_time={}", time.as_secs().max(1)))
            .arg(format!("-artifact_prefix={}/{target}-", findings.display()))
            .args(["-print_final_stats=1", "-reload=0"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .status()
            .with_context(|| format!("{} cannot be started", self.program.display()))?;
        let text = fs::read(&log).with_context(|| log.display().to_string())?;
        let mut slice = read_log(&String::from_utf8_lossy(&text));
        slice.processor_time = processor_time()?.saturating_sub(before);
        slice.corpus = fs::read_dir(&corpus)?.count();
        if !status.success() {
            let file = slice.finding.take();
            slice.finding =
                Some(file.unwrap_or_else(|| format!("none ({status}): see {}", log.display())));
        }
        Ok(slice)
    }

    /// Copies those programs of a grown corpus to a new directory that together reach all that it reaches.
    pub(crate) fn minimise(&self, target: &str, corpora: &Corpora) -> anyhow::Result<TempDir> {
        let minimised = tempfile::tempdir()?;
        let to = minimised.path();
        let mut command = self.command(target);
        // A program that fails is copied, too: not to where this happens to run.
        let beside = to.parent().unwrap_or(to).display();
        command.arg(format!("-artifact_prefix={beside}/{target}-"));
        command.arg("-merge=1").arg(to).arg(corpora.grown(target));
        process::output(&mut command)?;
        Ok(minimised)
    }

    fn command(&self, target: &str) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env("KVMLET_FUZZ_TARGET", target)
            // Programs of targets leave threads and their stacks behind when the process ends.
            .env("ASAN_OPTIONS", "detect_leaks=0")
            .arg(format!("-max_len={MAX_BYTES}"))
            .arg(format!("-timeout={HANG_SECONDS}"));
        command
    }
}

/// Processor time of all children that have ended.
fn processor_time() -> anyhow::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let micros = |time: nix::sys::time::TimeVal| {
        let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
        Duration::from_secs(seconds)
            + Duration::from_micros(u64::try_from(time.tv_usec()).unwrap_or(0))
    };
    Ok(micros(usage.user_time()) + micros(usage.system_time()))
}

/// The numbers in what libFuzzer prints: `#8192 pulse  cov: 3018 ft: 11416 corp: ...` as it goes on,
/// `stat::number_of_executed_units: 12328` and `Test unit written to FILE` at its end.
fn read_log(text: &str) -> Slice {
    let mut slice = Slice::default();
    for line in text.lines() {
        if let Some(count) = line.strip_prefix("stat::number_of_executed_units:") {
            slice.executions = count.trim().parse().unwrap_or(0);
        } else if let Some((_, file)) = line.split_once("Test unit written to ") {
            slice.finding = Some(file.trim().to_owned());
        } else if line.starts_with('#') {
            let mut words = line.split_whitespace();
            while let Some(word) = words.next() {
                let place = match word {
                    "cov:" => &mut slice.edges,
                    "ft:" => &mut slice.features,
                    _ => continue,
                };
                *place = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
            }
        }
    }
    slice
}

fn has_nightly() -> bool {
    let mut command = Command::new("cargo");
    command
        .env_remove("RUSTUP_TOOLCHAIN")
        .args(["+nightly", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The program is a workspace of its own, with the versions of this one.
pub(super) fn share_versions(root: &Path) -> anyhow::Result<()> {
    let lock = root.join(LIBFUZZER).join("Cargo.lock");
    fs::copy(root.join("Cargo.lock"), &lock).with_context(|| lock.display().to_string())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::read_log;

    #[test]
    fn numbers_of_a_slice_are_the_last_ones_that_libfuzzer_printed() {
        let slice = read_log(
            "INFO: Seed: 1\n#2\tINITED cov: 11 ft: 12 corp: 1/1b exec/s: 0 rss: 30Mb\n\
             #4096\tpulse  cov: 2059 ft: 8948 corp: 70/12Kb lim: 4096 exec/s: 585 rss: 71Mb\n\
             stat::number_of_executed_units: 5000\n",
        );
        let numbers = (slice.executions, slice.edges, slice.features);
        assert_eq!(numbers, (5000, 2059, 8948));
        assert_eq!(slice.finding, None);
        let failed = read_log("artifact_prefix='/x/blk-'; Test unit written to /x/blk-crash-1\n");
        assert_eq!(failed.finding.as_deref(), Some("/x/blk-crash-1"));
    }
}
