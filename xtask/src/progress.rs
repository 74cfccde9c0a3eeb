//! What the commands print about themselves, on standard error.

use std::time::Instant;

/// Runs one step under a heading, with the time it took after it when that is worth a line.
///
/// # Errors
/// Those of the step.
pub fn step<T>(what: &str, run: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    eprintln!("==> {what}");
    let started = Instant::now();
    let result = run()?;
    let seconds = started.elapsed().as_secs_f64();
    if seconds >= 1.0 {
        eprintln!("    {what}: {seconds:.1} s");
    }
    Ok(result)
}
