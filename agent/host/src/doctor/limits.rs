//! What the agent itself may do, judged by whoever runs this: run it as the agent runs.

use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::geteuid;

use super::finding::Finding;

/// A guest costs the agent a handful of descriptors; this is enough for a thousand.
const DESCRIPTORS: u64 = 16_384;

/// Whether taps, users and cgroups can be had.
pub(super) fn privileges() -> Finding {
    const CHECK: &str = "privileges";
    if geteuid().is_root() {
        return Finding::ok(CHECK, "runs as root");
    }
    Finding::warn(
        CHECK,
        format!(
            "runs as uid {}: taps, bridges, cgroups and users of VMMs may be out of reach",
            geteuid()
        ),
        "run it, and the agent, as root",
    )
}

/// Whether many guests can be served.
pub(super) fn descriptors() -> Finding {
    const CHECK: &str = "descriptors";
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((_, most)) if most >= DESCRIPTORS => {
            Finding::ok(CHECK, format!("up to {most} open files"))
        }
        Ok((_, most)) => Finding::warn(
            CHECK,
            format!(
                "up to {most} open files: enough for about {} guests",
                most / 16
            ),
            format!("ulimit -Hn {DESCRIPTORS}, or LimitNOFILE={DESCRIPTORS} in the unit"),
        ),
        Err(error) => Finding::warn(
            CHECK,
            format!("the limit of open files is not known ({error})"),
            "look at ulimit -Hn",
        ),
    }
}
