//! `cargo xtask build`: the programs and the test guest, in the profile that `xtask` itself was built with.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use integration::artifacts;
use integration::process::{self, cargo};

/// Builds all programs of the workspace and `testguest` beside them.
///
/// # Errors
/// When a build fails.
pub fn run(root: &Path) -> anyhow::Result<()> {
    programs(root)?;
    testguest(root)
}

/// Builds all programs of the workspace.
///
/// # Errors
/// When the build fails.
pub fn programs(root: &Path) -> anyhow::Result<()> {
    let mut command = cargo(root);
    command.args(["build", "--profile", &artifacts::profile()?]);
    process::stream(command.args(["--workspace", "--bins"]))
}

/// Builds the named programs of the workspace, and the agent of nodes in a box that runs them. Dependencies get the features
/// that the whole workspace gives them, so that a later build of everything builds none of them again.
///
/// # Errors
/// When the build fails.
pub fn only(root: &Path, names: &[&str]) -> anyhow::Result<()> {
    let mut command = cargo(root);
    command.args(["build", "--profile", &artifacts::profile()?, "--workspace"]);
    command.args(["--bin", "node-agent"]);
    command.args(names.iter().flat_map(|name| ["--bin", name]));
    process::stream(&mut command)
}

/// Where the test guest's crate lies, below the root of the clone.
pub const TESTGUEST: &str = "guest-images/testguest";

/// The test guest's own build directory: its flags differ, so it shares nothing with the workspace.
pub fn testguest_target() -> anyhow::Result<PathBuf> {
    Ok(artifacts::directory()?.join("testguest-build"))
}

/// Builds `testguest` beside the programs.
///
/// # Errors
/// When the build fails.
pub fn testguest(root: &Path) -> anyhow::Result<()> {
    let target = testguest_target()?;
    process::stream(
        cargo(&root.join(TESTGUEST))
            .args(["build", "--release", "--bins"])
            .arg("--target-dir")
            .arg(&target),
    )?;
    let built = target.join("x86_64-unknown-linux-gnu/release/testguest");
    let beside = artifacts::directory()?.join("testguest");
    fs::copy(&built, &beside).with_context(|| format!("{} cannot be copied", built.display()))?;
    Ok(())
}
