//! `cargo xtask layers`: which crate may import which, hold unsafe code, and drop errors,
//! which files of a crate import each other, and where the daemon's `Agent` is implemented.
//!
//! [`violations`] is a pure function of the packages that cargo sees and of [`table::CRATES`].

mod agent;
mod packages;
mod swallowed;
mod table;
mod unsafety;

use std::path::Path;

use packages::Packages;
use table::{CRATES, CrateRules};

use crate::cycles;

/// Checks the workspace at `root`.
///
/// # Errors
/// Lists every import and every unsafe block outside the table, every error that is dropped without a reason, every
/// cycle of files, and what is implemented on the daemon's `Agent` elsewhere than in its own files.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let packages = Packages::of_workspace(root)?;
    let mut found = violations(&packages);
    found.extend(unsafety::violations(root)?);
    found.extend(swallowed::violations(root)?);
    found.extend(cycles::violations(root)?);
    found.extend(agent::violations(root)?);
    anyhow::ensure!(
        found.is_empty(),
        "what no crate may do:\n  {}",
        found.join("\n  ")
    );
    Ok(())
}

/// Every import that the table does not allow, one sentence each.
fn violations(packages: &Packages) -> Vec<String> {
    let mut found = Vec::new();
    for package in packages.members() {
        let Some(krate) = CRATES.iter().find(|krate| krate.name == package) else {
            found.push(format!(
                "{package} is in no row of xtask/src/layers/table.rs"
            ));
            continue;
        };
        for import in packages.imports(package) {
            if packages.is_member(import) && !allows(krate, import) {
                found.push(format!(
                    "{package} imports {import}; it may import {}",
                    list(krate.imports)
                ));
            }
            if krate.never_directly.contains(&import) {
                found.push(format!(
                    "{package} imports {import}, which {}",
                    krate.because
                ));
            }
        }
        for banned in krate.never_at_all {
            if let Some(path) = packages.path(package, banned) {
                found.push(format!(
                    "{package} reaches {banned} ({}), which {}",
                    path.join(" -> "),
                    krate.because
                ));
            }
        }
        if let Some(limit) = krate.most_packages {
            let count = packages.reach(package).len();
            if count > limit {
                found.push(format!(
                    "{package} needs {count} packages, {limit} are allowed"
                ));
            }
        }
    }
    found
}

fn allows(krate: &CrateRules, import: &str) -> bool {
    krate.imports.contains(&"*") || krate.imports.contains(&import)
}

fn list(names: &[&str]) -> String {
    if names.is_empty() {
        "no other crate".to_owned()
    } else {
        names.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::process::Command;

    use super::packages::Packages;
    use super::{run, violations};

    fn workspace() -> Packages {
        Packages::of_workspace(&crate::workspace::root().expect("a clone"))
            .expect("cargo describes it")
    }

    fn assert_refused(importer: &str, imported: &str) {
        let mut packages = workspace();
        packages.add_import(importer, imported);
        let found = violations(&packages);
        assert!(
            found
                .iter()
                .any(|text| text.starts_with(importer) && text.contains(imported)),
            "{importer} -> {imported} must be refused, found only {found:?}"
        );
    }

    #[test]
    fn the_workspace_keeps_to_the_table() {
        assert_eq!(violations(&workspace()), Vec::<String>::new());
    }

    #[test]
    fn the_planner_may_not_import_the_host() {
        assert_refused("agent-plan", "agent-host");
    }

    #[test]
    fn the_planner_may_not_have_a_runtime_or_a_clock() {
        assert_refused("agent-plan", "tokio");
        assert_refused("agent-plan", "jiff");
    }

    #[test]
    fn sources_may_not_call_the_host() {
        assert_refused("agent-sources", "agent-host");
    }

    #[test]
    fn devices_may_not_know_kvm() {
        assert_refused("vmm-devices", "vmm-kvm");
        assert_refused("vmm-devices", "kvm-ioctls");
    }

    #[test]
    fn the_monitor_may_not_reach_tokio_even_through_others() {
        assert_refused("vmm-monitor", "tokio");
        let mut packages = workspace();
        packages.add_import("vmm-devices", "innocent");
        packages.add_import("innocent", "tokio");
        let found = violations(&packages);
        assert!(
            found
                .iter()
                .any(|text| text.starts_with("vmm-monitor reaches tokio")),
            "{found:?}"
        );
    }

    #[test]
    fn the_private_protocol_may_not_know_the_public_one() {
        assert_refused("proto-vmm", "proto-node");
    }

    #[test]
    fn the_vmm_may_not_know_the_agent() {
        assert_refused("vmm-machine", "agent-domain");
    }

    #[test]
    fn a_room_that_nobody_wrote_down_is_refused() {
        let mut packages = workspace();
        packages.add_member("agent-cellar");
        assert!(
            violations(&packages)
                .iter()
                .any(|text| text.contains("agent-cellar"))
        );
    }

    /// The command itself, on a copy of the workspace with one line more.
    #[test]
    fn the_command_fails_when_a_forbidden_import_is_added() {
        let root = crate::workspace::root().expect("a clone");
        let copy = tempfile::tempdir().expect("a directory");
        copy_tracked_files(&root, copy.path());
        run(copy.path()).expect("the copy keeps to the table");

        let manifest = copy.path().join("vmm/monitor/Cargo.toml");
        let text = fs::read_to_string(&manifest).expect("readable");
        fs::write(
            &manifest,
            text.replacen(
                "[dependencies]",
                "[dependencies]\ntokio.workspace = true",
                1,
            ),
        )
        .expect("writable");
        let refused = run(copy.path()).expect_err("tokio in the VMM").to_string();
        assert!(refused.contains("vmm-monitor imports tokio"), "{refused}");
    }

    #[test]
    fn the_command_fails_when_a_crate_stops_forbidding_unsafe_code() {
        let root = crate::workspace::root().expect("a clone");
        let copy = tempfile::tempdir().expect("a directory");
        copy_tracked_files(&root, copy.path());
        let lib = copy.path().join("agent/plan/src/lib.rs");
        let text = fs::read_to_string(&lib).expect("readable");
        fs::write(&lib, text.replace("#![forbid(unsafe_code)]", "")).expect("writable");
        let refused = run(copy.path())
            .expect_err("a crate that allows unsafe")
            .to_string();
        assert!(refused.contains("agent/plan/src/lib.rs"), "{refused}");
    }

    fn copy_tracked_files(from: &Path, to: &Path) {
        let listed = Command::new("git")
            .arg("-C")
            .arg(from)
            .arg("ls-files")
            .output()
            .expect("git runs");
        for name in String::from_utf8(listed.stdout)
            .expect("names are text")
            .lines()
        {
            let (source, target) = (from.join(name), to.join(name));
            if source.is_file() {
                fs::create_dir_all(target.parent().expect("a file has a directory")).expect("made");
                fs::copy(source, target).expect("copied");
            }
        }
    }
}
