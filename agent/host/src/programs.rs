//! Where the agent's other programs are.

use std::path::{Path, PathBuf};

/// Name of the program that answers guests' requests for addresses.
pub use agent_dhcp_server::PROGRAM as DHCP_PROGRAM;

/// Where packages put programs that nobody but the agent starts.
const INSTALLED: &str = "/usr/libexec/kvmlet";

/// A program beside this one, else where packages put it.
#[must_use]
pub fn find_program(name: &str) -> PathBuf {
    let here = std::env::current_exe().ok();
    let beside = here.and_then(|path| path.parent().map(|parent| parent.join(name)));
    beside
        .filter(|path| path.exists())
        .unwrap_or_else(|| Path::new(INSTALLED).join(name))
}
