//! `cargo xtask check`: everything that needs no guest. In the profile of programs and tests: its build
//! scripts and macros then serve for them too.

use std::path::Path;
use std::process::{Command, Stdio};

use integration::artifacts;
use integration::process::{self, cargo};
use integration::tools;

use crate::build::TESTGUEST;
use crate::progress::step;
use crate::{audit, documented, fuzz, r#gen, layers, words};

/// Runs all checks; the first that fails ends it.
///
/// # Errors
/// When a check fails.
pub fn run(root: &Path) -> anyhow::Result<()> {
    components(root)?;
    let guest = root.join(TESTGUEST);
    step("layers", || layers::run(root))?;
    step("words", || words::run(root))?;
    step("tests and paths that pages name", || documented::run(root))?;
    step("generated code", || r#gen::run(root, true))?;
    step("formatting", || {
        process::stream(cargo(root).args(["fmt", "--all", "--check"]))?;
        process::stream(cargo(&guest).args(["fmt", "--check"]))
    })?;
    step("clippy", || {
        let deny = ["--", "-D", "warnings"];
        process::stream(
            cargo(root)
                .args(["clippy", "--profile", &artifacts::profile()?])
                .args(["--quiet", "--workspace", "--all-targets"])
                .args(deny),
        )?;
        let target = crate::build::testguest_target()?;
        process::stream(
            cargo(&guest)
                .args(["clippy", "--quiet", "--target-dir"])
                .arg(target)
                .args(deny),
        )
    })?;
    step("libFuzzer's programs", || fuzz::check(root))?;
    step("documentation", || {
        process::stream(cargo(root).env("RUSTDOCFLAGS", "-D warnings").args([
            "doc",
            "--profile",
            &artifacts::profile()?,
            "--quiet",
            "--workspace",
            "--no-deps",
        ]))
    })?;
    audit::offline(root)
}

/// rustfmt and clippy come with most toolchains, but not with the minimal profile of rustup.
fn components(root: &Path) -> anyhow::Result<()> {
    let works = |subcommand: &str| {
        let mut command = cargo(root);
        command
            .args([subcommand, "--version"])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    for (subcommand, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        if works(subcommand) {
            continue;
        }
        anyhow::ensure!(
            tools::is_there("rustup"),
            "cargo {subcommand} is missing: install {component}"
        );
        eprintln!("installing by rustup: {component}");
        process::stream(
            Command::new("rustup")
                .args(["component", "add", component])
                .current_dir(root),
        )?;
    }
    Ok(())
}
