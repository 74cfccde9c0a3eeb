//! Nothing but its entry, its message and its controller names a kind: what every other place would have to learn of a
//! further one, it asks the table.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

use agent_objects::Kinds;

/// Kinds that had calls and an actor of their own before there was a table.
const OLDER: [&str; 2] = ["Event", "VirtualMachineInstance"];

/// Where a kind may be named, and why.
const ALLOWED: [(&str, &str); 21] = [
    ("agent/objects/src/kinds/", "its entry"),
    ("agent/controllers/src/", "its controller"),
    (
        "agent/daemon/src/objects/namespace.rs",
        "what namespaces mean to writes of all kinds",
    ),
    ("agent/daemon/src/objects/node.rs", "what this node is"),
    ("agent/cli/src/maintenance.rs", "what its refusals are of"),
    ("agent/cli/src/machines.rs", "its verbs"),
    ("agent/cli/src/create/", "manifests of its kind"),
    (
        "agent/cli/src/credentials.rs",
        "machines, and the Secrets that they name",
    ),
    ("agent/cli/src/expand.rs", "its verb"),
    (
        "agent/sources/src/machines/expand.rs",
        "what its verb answers",
    ),
    ("agent/cli/src/ssh/wait.rs", "what a login waits for"),
    ("agent/cli/src/why/machine.rs", "what a machine waits for"),
    (
        "agent/cli/src/top/machines.rs",
        "whose guests it shows beside their states",
    ),
    (
        "agent/cli/src/apply/machine.rs",
        "when a machine that was applied is ready",
    ),
    (
        "agent/daemon/src/given/service_account.rs",
        "what a volume names",
    ),
    (
        "agent/daemon/src/objects/machines.rs",
        "what its verbs ask of it",
    ),
    (
        "agent/daemon/src/instancetypes.rs",
        "those that are there from the start",
    ),
    (
        "agent/daemon/src/pods.rs",
        "a VirtualMachine keeps the address of its VMI",
    ),
    ("agent/objects/src/kit", "what a VirtualMachine names"),
    ("agent/cli/src/describe.rs", "a heading that is the word"),
    (
        "agent/cli/src/validate/",
        "what is known of KubeVirt's kinds without a node",
    ),
];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_code_matches_over_kinds() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for room in [
        "cli",
        "controllers",
        "daemon",
        "objects",
        "sources",
        "store",
    ] {
        sources(&root.join(format!("agent/{room}/src")), &mut files);
    }
    let mut named = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a source");
        // Tests name what they test.
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let place = file.strip_prefix(&root).expect("in the clone");
        let place = place.display().to_string();
        if place.contains("/tests")
            || ALLOWED
                .iter()
                .any(|(allowed, _)| place.starts_with(allowed))
        {
            continue;
        }
        for kind in Kinds::this_release().all() {
            let is_named = code.contains(&format!("{:?}", kind.kind));
            if is_named && !OLDER.contains(&kind.kind) {
                named.push(format!("{place} names {}", kind.kind));
            }
        }
    }
    assert!(
        named.is_empty(),
        "ask the table of kinds instead: {named:#?}"
    );
}
