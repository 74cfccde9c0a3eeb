//! `cargo xtask bench`: figures beside their budgets.
//!
//! No figure fails anything: the machine is noisy. Budgets and goals are those of the project's
//! design; a ratio or a size has one, a time measured under emulation has none.

mod figure;
mod guests;
mod nodes;

use std::path::{Path, PathBuf};

use figure::{Better, Figure};

use integration::host;

use crate::progress::step;

/// Measures everything and prints a table; with `json` also writes the figures there.
///
/// # Errors
/// When something can not be built or measured.
pub fn run(root: &Path, json: Option<PathBuf>) -> anyhow::Result<()> {
    step("build", || crate::build::run(root))?;
    step("images", || crate::images::run(false))?;
    let mut figures = vec![vmm_packages(root)?];
    match host::without_host() {
        Some(reason) => eprintln!("guests on this machine's KVM: SKIPPED, {reason}"),
        None => figures.extend(step("guests on this machine's KVM", guests::figures)?),
    }
    figures.extend(step("node start times", nodes::figures)?);
    figure::print(&figures);
    if let Some(path) = json {
        std::fs::write(&path, serde_json::to_string_pretty(&figures)?)?;
        eprintln!("written: {}", path.display());
    }
    Ok(())
}

fn vmm_packages(root: &Path) -> anyhow::Result<Figure> {
    let count = u32::try_from(crate::layers::package_count(root, "vmm-monitor")?)?;
    Ok(Figure::new("kvmlet-vmm packages", f64::from(count), "packages", Better::Less)
        .budget(90.0, 70.0)
        .how("cargo metadata: normal dependencies of vmm-monitor, itself included, procedural macros left out"))
}
