//! OOM scores: when the node has no memory left, the kernel kills the agent before any guest.
//!
//! Guests outlive their agent, and the service manager starts it again; a guest that is killed is lost. The kernel goes by
//! size and by `oom_score_adj` (proc(5)), and children inherit the latter. So the agent raises its own when it starts, with
//! the helpers that it starts later, and the helper that becomes a VMM takes it back. `OOMScoreAdjust=` of the unit cannot do
//! that: what systemd sets, nobody below may lower again without `CAP_SYS_RESOURCE`.

use std::fs;
use std::io;

const FILE: &str = "/proc/self/oom_score_adj";

/// The highest there is: more than a VMM gets for having all memory of the node.
const FIRST: i32 = 1000;

/// What a VMM may have, the best first. Lower ones than the service manager's are refused.
const SPARED: [i32; 5] = [0, 250, 500, 750, 900];

/// Has the kernel kill this process, and what it starts, before any guest.
///
/// # Errors
/// When the kernel does not take it.
pub fn offer_first() -> io::Result<()> {
    fs::write(FILE, FIRST.to_string())
}

/// Takes it back for this process and what it starts. Where that is refused, the VMM goes as early as the agent does.
pub(crate) fn spare() {
    for score in SPARED {
        if fs::write(FILE, score.to_string()).is_ok() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn score() -> i32 {
        let text = fs::read_to_string(FILE).unwrap();
        text.trim().parse().unwrap()
    }

    /// In a process of its own, because what is raised stays.
    #[test]
    fn the_agent_goes_before_its_guests() {
        const CHILD: &str = "KVMLET_TEST_OOM_SCORE";
        if std::env::var_os(CHILD).is_some() {
            offer_first().unwrap();
            assert_eq!(score(), FIRST);
            spare();
            assert!(score() < FIRST);
            return;
        }
        let mut child = Command::new(std::env::current_exe().unwrap());
        let name = "oom_score::tests::the_agent_goes_before_its_guests";
        let ended = child.args(["--exact", name]).env(CHILD, "1").status();
        assert!(ended.unwrap().success());
    }
}
