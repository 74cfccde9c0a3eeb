//! One heap for all threads. glibc gives each thread one of its own, which keep what they free: with 200 guests, half of
//! the agent's heap was free memory in sixteen of them.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// A variable of the environment, which glibc reads before the first allocation. Later only unsafe code could set the number.
const SETTING: &str = "MALLOC_ARENA_MAX";

/// Starts this program anew with one heap, as the same process; returns when it has one, or cannot.
pub(crate) fn start_with_one() {
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
            .env(SETTING, "1")
            .exec(),
    );
}
