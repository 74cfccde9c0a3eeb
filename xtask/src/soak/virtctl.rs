//! `cargo xtask soak virtctl`: what a real `virtctl create` prints and refuses, for `kvmctl` to print and refuse.

mod cases;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use integration::sim::Random;
use serde_json::json;

/// Where tests of `kvmctl` find the files that flags name, and the recording.
const DIRECTORY: &str = "agent/cli/tests/virtctl";

/// Compression of what is recorded once and read often.
const LEVEL: i32 = 19;

/// Which virtctl, and how often it is asked.
#[derive(clap::Args)]
pub struct VirtctlOptions {
    /// A virtctl. No cluster is needed.
    #[arg(long, value_name = "PROGRAM")]
    virtctl: PathBuf,
    /// From which combinations of flags follow.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of combinations.
    #[arg(long, default_value_t = 500)]
    cases: u32,
}

/// Records what virtctl says.
///
/// # Errors
/// When it cannot be run, or says something else than a manifest or a refusal.
pub fn run(root: &Path, options: &VirtctlOptions) -> anyhow::Result<()> {
    let directory = root.join(DIRECTORY);
    let program = options.virtctl.canonicalize();
    let program = program.with_context(|| options.virtctl.display().to_string())?;
    let mut random = Random::new(options.seed);
    let (mut lines, mut refused) = (String::new(), 0);
    for _ in 0..options.cases {
        let args = cases::next(&mut random);
        let output = Command::new(&program)
            .args(&args)
            .current_dir(&directory)
            // Neither a cluster nor a namespace of whoever records.
            .env_clear()
            .env("KUBECONFIG", "/dev/null")
            .output()
            .with_context(|| program.display().to_string())?;
        let stdout = String::from_utf8(output.stdout)?;
        let stderr = String::from_utf8(output.stderr)?;
        let is_refused = match output.status.code() {
            Some(0) => false,
            Some(1) if stdout.is_empty() => true,
            _ => anyhow::bail!("{args:?} ended with {}:\n{stderr}", output.status),
        };
        refused += u32::from(is_refused);
        let stderr = messages_of(&stderr, is_refused);
        writeln!(
            lines,
            "{}",
            json!({"args": args, "stdout": stdout, "stderr": stderr})
        )?;
    }
    let packed = zstd::encode_all(lines.as_bytes(), LEVEL)?;
    let path = directory.join("recorded.jsonl.zst");
    fs::write(&path, &packed).with_context(|| path.display().to_string())?;
    println!(
        "{} combinations, {refused} of them refused, in {} bytes: {}",
        options.cases,
        packed.len(),
        path.display()
    );
    Ok(())
}

/// What virtctl says of flags. A failure also makes it compare its version with that of a cluster, of which it then
/// says that there is none.
fn messages_of(stderr: &str, is_refused: bool) -> Vec<String> {
    let is_warning = |line: &&str| line.starts_with("Flag --") || line.starts_with("WARNING: ");
    let mut messages: Vec<String> = stderr.lines().filter(is_warning).map(warning).collect();
    if is_refused {
        messages.extend(stderr.lines().last().map(refusal));
    }
    messages
}

/// A warning, of which one has no end of line.
fn warning(line: &str) -> String {
    const LAST: &str = "although other cloud-init options were set";
    let end = line
        .find(LAST)
        .map_or(line.len(), |start| start + LAST.len());
    line[..end].to_owned()
}

/// A refusal. It names unknown parameters in the order of a map of Go, which is another one each time.
fn refusal(line: &str) -> String {
    const OPENING: &str = "unknown param(s): ";
    let Some((before, params)) = line.split_once(OPENING) else {
        return line.to_owned();
    };
    let mut params: Vec<&str> = params.split(',').collect();
    params.sort_unstable();
    format!("{before}{OPENING}{}", params.join(","))
}
