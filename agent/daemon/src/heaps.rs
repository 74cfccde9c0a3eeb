//! Few heaps for all threads. glibc gives each thread one of its own, which keep what they free: with 200 guests, half of
//! the agent's heap was free memory in sixteen of them. With a single one, the two threads that answer calls and the one that writes the
//! ledger spent a fifth of their time waiting for each other's allocations.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// A variable of the environment, which glibc reads before the first allocation. Later only unsafe code could set the number.
const SETTING: &str = "MALLOC_ARENA_MAX";

/// One for each of the busy threads.
const HEAPS: &str = "3";

/// Starts this program anew with few heaps, as the same process; returns when it has them, or cannot.
pub(crate) fn start_with_few() {
    if std::env::var_os(SETTING).is_some() {
        return;
    }
    let mut arguments = std::env::args_os();
    let (Ok(program), Some(name)) = (std::env::current_exe(), arguments.next()) else {
        return;
    };
    // It only returns where it fails, and many heaps do no harm but that of their size.
    drop(
        Command::new(program)
            .arg0(name)
            .args(arguments)
            .env(SETTING, HEAPS)
            .exec(),
    );
}
