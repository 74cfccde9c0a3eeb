//! `cargo xtask bench`: figures beside their budgets.
//!
//! No figure fails anything: the machine is noisy. Budgets and goals are those of the project's
//! design; a ratio or a size has one, a time measured under emulation has none.

pub mod agent;
pub mod crowd;
mod figure;
mod guests;
pub mod images;
pub mod io;
pub mod machines;
mod median;
pub mod net;
mod nodes;
mod objects;
mod snapshots;
mod stores;
pub mod vmm;

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

use figure::{Better, Figure};

use integration::{host, process, skip};

use crate::progress::step;

/// The profile whose programs are measured. Tests run less optimised ones.
pub const PROFILE: &str = "release";

/// Goes on as this same command in [`PROFILE`]: what a benchmark builds and runs has the profile of `xtask` itself.
///
/// # Errors
/// When it cannot be built or run.
pub fn in_release(root: &Path) -> anyhow::Result<()> {
    let mut command = process::cargo(root);
    command.args([
        "run",
        "--profile",
        PROFILE,
        "--quiet",
        "--bin",
        "xtask",
        "--",
    ]);
    let error = command.args(std::env::args_os().skip(1)).exec();
    Err(error).context("cargo")
}

/// Measures everything and prints a table; with `json` also writes the figures there.
///
/// # Errors
/// When something cannot be built or measured.
pub fn run(root: &Path, json: Option<PathBuf>) -> anyhow::Result<()> {
    step("build", || crate::build::run(root))?;
    step("images", || crate::images::run(false))?;
    let mut figures = vec![vmm_packages(root)?];
    match host::without_host() {
        Some(reason) => eprintln!("guests on this machine's KVM: SKIPPED, {reason}"),
        None => figures.extend(step("guests on this machine's KVM", guests::figures)?),
    }
    match skip::without_kvm() {
        Some(reason) => eprintln!("snapshots: SKIPPED, {reason}"),
        None => figures.extend(step("snapshots", snapshots::figures)?),
    }
    figures.extend(step("node start times", nodes::figures)?);
    figure::print(&figures);
    match json {
        Some(path) => figure::write(&figures, &path),
        None => Ok(()),
    }
}

fn vmm_packages(root: &Path) -> anyhow::Result<Figure> {
    const PACKAGE: &str = "vmm-monitor";
    let arguments = ["-e", "normal", "--prefix", "none", "--no-dedupe"];
    let tree = process::output(
        integration::process::cargo(root)
            .args(["tree", "--locked", "-p", PACKAGE])
            .args(arguments),
    )?;
    let packages: BTreeSet<&str> = tree.lines().collect();
    let count = u32::try_from(packages.len())?;
    Ok(Figure::new(
        "kvmlet-vmm packages",
        f64::from(count),
        "packages",
        Better::Less,
    )
    .budget(90.0, 70.0)
    .how("cargo tree -p vmm-monitor -e normal --prefix none --no-dedupe | sort -u | wc -l"))
}
