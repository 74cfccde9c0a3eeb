//! How much memory the agent may come to need: what `MemoryMax=` of the packaged unit follows from.

use std::path::Path;

use agent_host::{Finding, HELPER_MEMORY_BYTES, Health};
use agent_sources::{CallLimits, MAX_RESPONSE_BYTES, MOST_CONNECTIONS};

/// Threads that carry the agent. It waits most of the time; each thread costs memory.
pub(crate) const WORKERS: usize = 2;

/// The cgroup of the packaged unit's service.
const CGROUP: &str = "sys/fs/cgroup/system.slice/kvmlet.service/memory.max";

/// One part of the need.
struct Part {
    bytes: u64,
    what: &'static str,
}

/// All parts, each at its limit.
fn parts() -> [Part; 5] {
    let part = |bytes, what| Part { bytes, what };
    [
        // The memory budget of docs/agent-figures.md, and the ledger's cache, for a thousand VMIs.
        part((64 << 20) + 1000 * (64 << 10), "itself with 1000 VMIs"),
        part(CallLimits::default().worst_case_bytes(), "calls"),
        // Buffers of TLS and HTTP/2.
        part(MOST_CONNECTIONS as u64 * (32 << 10), "connections"),
        // Each worker may make one, of objects and then of bytes.
        part((WORKERS * 2 * MAX_RESPONSE_BYTES) as u64, "lists"),
        // Whoever starts one takes its limit from that first.
        part(HELPER_MEMORY_BYTES, "helpers"),
    ]
}

/// The sum.
fn need() -> u64 {
    parts().iter().map(|part| part.bytes).sum()
}

/// What the agent may need, beside what its service may have.
pub(crate) fn finding(root: &Path) -> Finding {
    let parts = parts().map(|part| format!("{} MiB for {}", part.bytes >> 20, part.what));
    let need = format!(
        "the agent may need {} MiB ({})",
        need() >> 20,
        parts.join(", ")
    );
    let finding = |health, message, way_out: String| Finding {
        check: "memory",
        health,
        message,
        way_out,
    };
    let limit = std::fs::read_to_string(root.join(CGROUP)).ok();
    let limit = limit.and_then(|text| text.trim().parse::<u64>().ok());
    match limit {
        Some(limit) if limit < self::need() => finding(
            Health::Warn,
            format!("{need}, and its service may have {} MiB", limit >> 20),
            format!(
                "MemoryMax={}M by systemctl edit kvmlet: the kernel may end the agent under load; guests go on",
                (self::need() >> 20) + 1
            ),
        ),
        Some(limit) => finding(
            Health::Ok,
            format!("{need}; its service may have {} MiB", limit >> 20),
            String::new(),
        ),
        None => finding(
            Health::Ok,
            format!("{need}; nothing limits it"),
            String::new(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: &str = include_str!("../../../systemd/kvmlet.service");

    fn setting(name: &str) -> &str {
        let mut lines = UNIT.lines();
        let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_else(|| panic!("the unit has no {name}="))
    }

    #[test]
    fn the_packaged_unit_lets_the_agent_have_what_its_limits_add_up_to() {
        let limit = setting("MemoryMax").strip_suffix('M').expect("in MiB");
        let limit: u64 = limit.parse().expect("a number");
        let need = need() >> 20;
        assert!(
            (need..need + 64).contains(&limit),
            "{need} MiB may be needed"
        );
    }

    #[test]
    fn the_packaged_unit_outlives_its_helpers_and_comes_back_as_often_as_it_is_killed() {
        for (name, value) in [
            ("OOMPolicy", "continue"),
            ("Restart", "always"),
            ("StartLimitIntervalSec", "0"),
        ] {
            assert_eq!(setting(name), value, "{name}");
        }
        // The agent raises its own score, and what systemd sets no VMM could lower again.
        assert!(!UNIT.contains("\nOOMScoreAdjust="));
    }

    #[test]
    fn a_service_whose_limit_is_too_low_logs_how_much_it_needs() {
        let root = tempfile::tempdir().expect("a directory");
        assert_eq!(finding(root.path()).health, Health::Ok);
        let file = root.path().join(CGROUP);
        std::fs::create_dir_all(file.parent().expect("has one")).expect("is made");
        for (limit, health) in [
            ("max\n", Health::Ok),
            ("99999999999\n", Health::Ok),
            ("1000\n", Health::Warn),
        ] {
            std::fs::write(&file, limit).expect("is written");
            assert_eq!(finding(root.path()).health, health, "{limit}");
        }
        assert!(finding(root.path()).way_out.starts_with("MemoryMax="));
    }
}
