//! Two things at a time while the machine is built.

use std::io;
use std::thread;

const STACK_BYTES: usize = 256 << 10;

/// Does `aside` on a thread of its own, called `name`, and `here` on this one; returns when both are
/// done. The thread may what this one may.
///
/// # Errors
/// When there can be no more threads. Neither was done then.
pub(crate) fn run_in_parallel<T: Send, U>(
    name: &str,
    aside: impl FnOnce() -> T + Send,
    here: impl FnOnce() -> U,
) -> io::Result<(T, U)> {
    #[allow(
        clippy::disallowed_methods,
        reason = "it has the filter of whoever calls, and ends before that goes on"
    )]
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, aside)?;
        let done = here();
        match thread.join() {
            Ok(value) => Ok((value, done)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_done() {
        let (aside, here) = run_in_parallel(
            "aside",
            || thread::current().id(),
            || thread::current().id(),
        )
        .unwrap();
        assert_eq!(here, thread::current().id());
        assert_ne!(aside, here);
    }
}
