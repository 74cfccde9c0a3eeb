//! `cargo xtask syscalls`: the system calls that threads of the VMM make, against those that their
//! filters allow.
//!
//! The VMMs that tests start by hand on this machine run under `strace`; in nodes in a box the kernel
//! notes what any VMM calls. A call that the tables have not got, and one
//! that they say is seen but is not, fails the command.

mod compare;
mod trace;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use integration::artifacts;
use integration::tools::{self, Tool};
use integration::traced;

use crate::progress::step;

const STRACE: &[Tool] = &[Tool {
    program: "strace",
    package: traced::PACKAGE,
}];

/// A tracer writes its last lines after its program has ended.
const PATIENCE: Duration = Duration::from_secs(30);

/// Which traces to compare.
#[derive(clap::Args)]
pub struct SyscallsOptions {
    /// Compare the traces in this directory instead of making new ones.
    #[arg(long, value_name = "DIRECTORY")]
    of: Option<PathBuf>,
}

/// Traces, compares and prints the differences.
///
/// # Errors
/// When something cannot be run, or the tables and the calls differ.
pub fn run(root: &Path, options: &SyscallsOptions) -> anyhow::Result<()> {
    if let Some(directory) = &options.of {
        return compare::report(&trace::read_all(directory)?);
    }
    step("tools", || tools::ensure(STRACE))?;
    step("build", || crate::build::run(root))?;
    let directory = tempfile::tempdir()?;
    step("tests under strace", || run_tests(root, directory.path()))?;
    step("the tracers end", || wait_for_ends(directory.path()))?;
    compare::report(&trace::read_all(directory.path())?)
}

/// Tests of `integration` in which VMMs run. Agents start those of slices, so that on this machine only
/// the first leaves traces; the others run in nodes.
const TESTS: [&str; 4] = ["vmm", "linux_machine", "slice_busybox", "slice_systemd"];

fn run_tests(root: &Path, directory: &Path) -> anyhow::Result<()> {
    let mut command = integration::process::cargo(root);
    command.args(["test", "--profile", &artifacts::profile()?]);
    command.args(["--no-fail-fast", "-p", "integration"]);
    for test in TESTS {
        command.args(["--test", test]);
    }
    // Storms of exits take a tracer hours; what is forbidden ends those tests by itself.
    command.args(["--", "--test-threads=2", "--skip", "attack::"]);
    integration::process::stream(command.env(traced::DIRECTORY, directory))
}

fn wait_for_ends(directory: &Path) -> anyhow::Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        let open = trace::unfinished(directory)?;
        let Some(first) = open.first() else {
            return Ok(());
        };
        if Instant::now() > until {
            // A test that kills its VMM may kill the tracer's view of it as well.
            eprintln!("{} traces have no end, such as {first}", open.len());
            return Ok(());
        }
        // strace is no child of this process: its end shows in its files.
        std::thread::sleep(Duration::from_millis(50));
    }
}
