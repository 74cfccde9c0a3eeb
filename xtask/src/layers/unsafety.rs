//! Where unsafe code may stand.

use std::fs;
use std::path::Path;

use anyhow::Context;
use cargo_metadata::{MetadataCommand, TargetKind};

/// Directories, from the root of the workspace, whose crates may hold unsafe code.
const ALLOWED: &[&str] = &["vmm/kvm", "vmm/memory", "vmm/sys", "guest-images/testguest"];

const FORBID: &str = "#![forbid(unsafe_code)]";

/// Every crate root outside the allowed rooms that does not forbid unsafe code. Build scripts and
/// tests are crates of their own, so they have to forbid it as well.
pub(super) fn violations(root: &Path) -> anyhow::Result<Vec<String>> {
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .no_deps()
        .exec()
        .context("cargo metadata")?;
    let mut found = Vec::new();
    for package in metadata.workspace_packages() {
        for target in &package.targets {
            let path = target.src_path.as_std_path();
            let shown = path.strip_prefix(&metadata.workspace_root).unwrap_or(path);
            if ALLOWED.iter().any(|room| shown.starts_with(room)) {
                continue;
            }
            let text = fs::read_to_string(path)
                .with_context(|| format!("{} can not be read", path.display()))?;
            let required = !target.kind.contains(&TargetKind::CustomBuild);
            if required && !text.lines().any(|line| line.trim() == FORBID) {
                found.push(format!("{} does not say {FORBID}", shown.display()));
            }
        }
    }
    Ok(found)
}
