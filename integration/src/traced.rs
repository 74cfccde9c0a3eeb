//! Programs under `strace`, for `cargo xtask syscalls`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Names the directory that traces are written to; without it nothing is traced.
pub const DIRECTORY: &str = "KVMLET_TRACE_DIRECTORY";

/// The Debian package of the tracer.
pub const PACKAGE: &str = "strace";

/// The command that starts `program`: itself, or the tracer, which leaves the program's process id and
/// its parent as they are. Each thread has a file of its own, `NAME.NUMBERS.TID`, with a line a call:
/// arguments as they are, but for those of `prctl`, which gives threads their names.
#[must_use]
pub fn command(program: &Path) -> Command {
    static STARTED: AtomicU32 = AtomicU32::new(0);

    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else {
        return Command::new(program);
    };
    let number = STARTED.fetch_add(1, Ordering::Relaxed);
    let file = directory.join(format!("vmm.{}-{number}", std::process::id()));
    let mut command = Command::new("strace");
    command
        .args(["--daemonize", "--follow-forks", "--output-separately"])
        .args(["-e", "raw=!prctl", "-e", "signal=none", "--output"])
        .arg(file)
        .arg(program);
    command
}
