//! The programs of older versions, which `integration/compat/PREVIOUS` names by their commits. They are built once
//! and kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;

use crate::{artifacts, cache, process};

const PROGRAMS: [&str; 2] = ["kvmlet", "kvmlet-vmm"];

/// Built as quickly as can be, for nothing of it is measured. The library asserts by system calls that a
/// released VMM does not need, and that its filters forbid.
const PROFILE: [&str; 2] = [
    "profile.dev.debug=false",
    "profile.dev.debug-assertions=false",
];

/// The commits of those versions, the oldest first.
///
/// # Errors
/// When the file that names them cannot be read, or names none.
pub fn commits() -> anyhow::Result<Vec<String>> {
    let named = artifacts::workspace()?.join("integration/compat/PREVIOUS");
    let text = fs::read_to_string(&named).with_context(|| named.display().to_string())?;
    let commits: Vec<String> = text.lines().map(|line| line.trim().to_owned()).collect();
    anyhow::ensure!(!commits.is_empty(), "{} is empty", named.display());
    Ok(commits)
}

/// Why their source cannot be had here, if so.
#[must_use]
pub fn without_source() -> Option<String> {
    let looked = commits().and_then(|commits| {
        for commit in commits {
            let mut git = Command::new("git");
            git.args(["cat-file", "-e", &format!("{commit}^{{commit}}")]);
            process::output(git.current_dir(artifacts::workspace()?))?;
        }
        Ok(())
    });
    looked.err().map(|error| {
        format!("this clone does not reach back far enough (`git fetch --unshallow`): {error:#}")
    })
}

/// The directory of the agent and the VMM of a commit.
///
/// # Errors
/// When they cannot be built.
pub fn programs(commit: &str) -> anyhow::Result<PathBuf> {
    let key = cache::key(&[commit.as_bytes(), PROFILE.concat().as_bytes()]);
    cache::directory("previous", &key, |partial| build(commit, partial))
}

fn build(commit: &str, to: &Path) -> anyhow::Result<()> {
    eprintln!("building the programs of {commit}; about three minutes");
    let (source, target) = (to.join("source"), to.join("target"));
    let archive = to.join("source.tar");
    process::output(
        Command::new("git")
            .args(["archive", "--format=tar", "--output"])
            .arg(&archive)
            .arg(commit)
            .current_dir(artifacts::workspace()?),
    )?;
    fs::create_dir(&source)?;
    process::output(
        Command::new("tar")
            .arg("-xf")
            .arg(&archive)
            .arg("-C")
            .arg(&source),
    )?;
    process::stream(
        process::cargo(&source)
            .args(["build", "--quiet", "--locked"])
            .args(PROFILE.iter().flat_map(|setting| ["--config", setting]))
            .args(PROGRAMS.iter().flat_map(|name| ["--bin", name]))
            .env("CARGO_TARGET_DIR", &target)
            .stdin(Stdio::null()),
    )?;
    for name in PROGRAMS {
        let built = target.join("x86_64-unknown-linux-gnu/debug").join(name);
        fs::copy(&built, to.join(name)).with_context(|| built.display().to_string())?;
    }
    for left in [&source, &target] {
        fs::remove_dir_all(left)?;
    }
    fs::remove_file(archive)?;
    Ok(())
}
