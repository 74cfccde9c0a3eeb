//! `cargo xtask test`: checks, builds, and runs every test in a process of its own.
//!
//! A process for each test gives its time and its output without help of the test harness, and a
//! test that hangs or aborts takes no other with it.

mod costs;
mod doctests;
mod excerpt;
pub(crate) mod list;
mod queue;
mod result;
mod run;
mod summary;

use std::path::Path;
use std::time::{Duration, Instant};

use integration::image::qemu;
use integration::tools;

use crate::progress::step;

/// Names of tests that may boot a node begin so.
const OF_NODES: &str = "integration::";

/// Options of `cargo xtask test`.
#[derive(clap::Args)]
pub struct TestOptions {
    /// Only tests whose name (crate::target::test) contains this.
    filter: Option<String>,
    /// Leave out fmt, clippy, documentation, layers and the like.
    #[arg(long)]
    no_check: bool,
    /// What is not done so many minutes after the command's start fails, builds counted: a machine on which guests hang says so in
    /// time.
    #[arg(long, value_name = "MINUTES")]
    within: Option<u32>,
}

/// What tests need is installed before any of them runs: a test that finds a tool missing only skips.
fn install_tools() -> anyhow::Result<()> {
    let tools = tools::all();
    let missing = tools::missing(&tools);
    if missing.is_empty() || tools::can_install() {
        return tools::ensure(&tools);
    }
    eprintln!("some tests will be skipped: {}", tools::advice(&missing));
    Ok(())
}

/// Runs everything; the last line is `N passed, N failed, N skipped`.
///
/// # Errors
/// When a check or a test fails.
pub fn run(root: &Path, options: &TestOptions) -> anyhow::Result<()> {
    let deadline = options
        .within
        .map(|minutes| Instant::now() + Duration::from_secs(60 * u64::from(minutes)));
    step("tools", install_tools)?;
    let checked = if options.no_check {
        Ok(())
    } else {
        step("check", || crate::check::run(root))
    };
    step("build", || crate::build::run(root))?;
    step("packages", || crate::package::for_tests(root))?;
    let kernel = step("images", || crate::images::run(false))?;
    let mut tests = step("build tests", || list::all(root))?;
    let wanted = |name: &str| {
        options
            .filter
            .as_deref()
            .is_none_or(|filter| name.contains(filter))
    };
    tests.retain(|test| wanted(&test.name()));
    if tests.iter().any(|test| test.name().starts_with(OF_NODES)) {
        // What it takes is more than a test may; without it those tests fail and say why.
        if let Err(error) = step("QEMU for nodes", qemu::mended) {
            eprintln!("{error:#}");
        }
    }
    let mut results = step("tests", || Ok(run::all(tests, &kernel.bzimage(), deadline)))?;
    if options.filter.is_none() {
        results.extend(step("documentation tests", || doctests::run(root))?);
    }
    // A failed check is reported after the tests, which are worth running all the same.
    results.extend(checked.err().map(|error| result::TestResult {
        name: "cargo xtask check".to_owned(),
        cost: result::Cost::default(),
        outcome: result::TestOutcome::Failed(format!("{error:#}")),
    }));
    summary::print(&results);
    let failed = results
        .iter()
        .any(|result| matches!(result.outcome, result::TestOutcome::Failed(_)));
    if failed {
        std::process::exit(1)
    } else {
        Ok(())
    }
}
