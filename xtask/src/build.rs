//! `cargo xtask build`: the programs and the test guest, in the release profile.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use integration::{artifacts, process};

/// Builds all programs of the workspace and `testguest` beside them.
///
/// # Errors
/// When a build fails.
pub fn run(root: &Path) -> anyhow::Result<()> {
    programs(root)?;
    testguest(root)
}

/// What cargo tells the program that it runs about its package. Build scripts look at it (that of `ring` is run
/// again when it changes), and would see another package's each time that cargo is started by this one.
const OF_THIS_PACKAGE: [&str; 4] = [
    "CARGO_PKG_",
    "CARGO_MANIFEST_",
    "CARGO_BIN_",
    "CARGO_CRATE_",
];

/// The cargo that runs this program, so that the same toolchain builds.
pub fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if OF_THIS_PACKAGE.iter().any(|of| text.starts_with(of)) {
            command.env_remove(&name);
        }
    }
    command
}

/// Builds all programs of the workspace.
///
/// # Errors
/// When the build fails.
pub fn programs(root: &Path) -> anyhow::Result<()> {
    process::stream(cargo(root).args(["build", "--release", "--workspace", "--bins"]))
}

/// Where the test guest's crate lies, below the root of the clone.
pub const TESTGUEST: &str = "guest-images/testguest";

/// The test guest's own build directory: its flags differ, so it shares nothing with the workspace.
pub fn testguest_target() -> anyhow::Result<PathBuf> {
    Ok(artifacts::directory()?.join("testguest-build"))
}

fn testguest(root: &Path) -> anyhow::Result<()> {
    let target = testguest_target()?;
    process::stream(
        cargo(&root.join(TESTGUEST))
            .args(["build", "--release", "--bins"])
            .arg("--target-dir")
            .arg(&target),
    )?;
    let built = target.join("x86_64-unknown-linux-gnu/release/testguest");
    let beside = artifacts::directory()?.join("testguest");
    fs::copy(&built, &beside).with_context(|| format!("{} can not be copied", built.display()))?;
    Ok(())
}
