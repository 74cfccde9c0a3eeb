//! `cargo xtask soak liar`.

use std::path::Path;

use integration::skip;
use integration::soak::clients::liar::{lie, line};

use crate::progress::step;

/// Runs the campaign and prints its result.
///
/// # Errors
/// At the first lie that is not dropped and counted, and when the neighbour was disturbed.
pub(super) fn run(root: &Path) -> anyhow::Result<()> {
    if let Some(reason) = skip::without_node() {
        anyhow::bail!("SKIPPED, {reason}");
    }
    step("build", || crate::build::run(root))?;
    step("packages", || crate::package::for_tests(root))?;
    let all = step("lies", || lie(&mut |said| eprintln!("    {said}")))?;
    for output in &all {
        println!("{}", line(output));
    }
    Ok(())
}
