//! Where unsafe code may stand.

use std::fs;
use std::path::Path;

use anyhow::Context;
use cargo_metadata::{MetadataCommand, TargetKind};

/// Directories, from the root of the workspace, whose crates may hold unsafe code.
const ALLOWED: &[&str] = &["vmm/kvm", "vmm/memory", "vmm/sys", "guest-images/testguest"];

const FORBID: &str = "#![forbid(unsafe_code)]";

/// How unsafe code starts, in the spelling of rustfmt.
const STARTS: &[&str] = &[
    "unsafe {",
    "unsafe fn",
    "unsafe impl",
    "unsafe trait",
    "unsafe extern",
    "#[unsafe(",
];

/// Every library and program outside the allowed crates that does not forbid unsafe code, and every
/// test and build script there that has some: those are crates of their own, which need not say it.
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
            if ALLOWED.iter().any(|krate| shown.starts_with(krate)) {
                continue;
            }
            let text = fs::read_to_string(path)
                .with_context(|| format!("{} cannot be read", path.display()))?;
            if text.lines().any(|line| line.trim() == FORBID) {
                continue;
            }
            let aside = [
                TargetKind::CustomBuild,
                TargetKind::Test,
                TargetKind::Bench,
                TargetKind::Example,
            ];
            if !target.kind.iter().any(|kind| aside.contains(kind)) {
                found.push(format!("{} does not say {FORBID}", shown.display()));
            } else if let Some(line) = unsafe_line(&text) {
                found.push(format!("{} has unsafe code: {line}", shown.display()));
            }
        }
    }
    Ok(found)
}

fn unsafe_line(text: &str) -> Option<&str> {
    let code = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with("//"));
    code.into_iter()
        .find(|line| STARTS.iter().any(|start| line.contains(start)))
}

#[cfg(test)]
mod tests {
    use super::unsafe_line;

    #[test]
    fn unsafe_code_is_distinguished_from_talk_about_it() {
        assert_eq!(unsafe_line("// unsafe { }\nfn safe() {}"), None);
        // Put together here, so that this file does not refuse itself.
        let block = format!("let value = {} {{ read() }};", "unsafe");
        assert_eq!(unsafe_line(&block), Some(block.as_str()));
    }
}
