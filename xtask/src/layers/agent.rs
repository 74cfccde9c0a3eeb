//! The daemon's `Agent` makes the services, and actors hold it. What it does stands in its own files; all else is implemented
//! on a service.

use std::fs;
use std::path::Path;

use anyhow::Context;

/// The source of the daemon, from the root of the workspace.
const DAEMON: &str = "agent/daemon/src";

/// Files of it that implement `Agent`.
const OWN_FILES: [&str; 2] = ["agent.rs", "agent/spawn.rs"];

/// Every implementation of `Agent` in another file.
pub(super) fn violations(root: &Path) -> anyhow::Result<Vec<String>> {
    let source = root.join(DAEMON);
    let mut found = Vec::new();
    let mut open = vec![source.clone()];
    while let Some(directory) = open.pop() {
        let entries = fs::read_dir(&directory).with_context(|| directory.display().to_string())?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let file = path.strip_prefix(&source)?.to_string_lossy();
            if OWN_FILES.contains(&&*file) || !file.ends_with(".rs") {
                continue;
            }
            let text = fs::read_to_string(&path)
                .with_context(|| format!("{} cannot be read", path.display()))?;
            let lines = implementations(&text);
            found.extend(lines.map(|line| {
                format!(
                    "{DAEMON}/{file} implements Agent; implement a service: {}",
                    line.trim()
                )
            }));
        }
    }
    found.sort();
    Ok(found)
}

/// The lines that name `Agent` as the type that is implemented.
fn implementations(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| {
        let line = line.trim_start();
        let is_head = line.starts_with("impl") && line.contains(" Agent<");
        is_head || line.starts_with("for Agent<")
    })
}

#[cfg(test)]
mod tests {
    use super::implementations;

    #[test]
    fn an_implementation_of_the_agent_is_seen_whatever_it_implements() {
        for line in [
            "impl<H: Host> Agent<H> {",
            "impl<H: Host> GuestStreams for Agent<H> {",
            "    for Agent<H>",
        ] {
            assert_eq!(implementations(line).count(), 1, "{line}");
        }
        for line in [
            "impl Placements {",
            "    agent: Arc<Agent<H>>,",
            "fn keep(agent: &Agent<LinuxHost>) {",
        ] {
            assert_eq!(implementations(line).count(), 0, "{line}");
        }
    }
}
