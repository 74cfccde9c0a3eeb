//! Two processes out of one (`fork(2)`).

use std::io;

/// Which of the two goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkedProcess {
    /// The process that there was.
    Parent,
    /// The new one, whose parent nobody made wait for it.
    Child,
}

/// Goes on twice. For programs that stand in for a VMM's agent: what runs guests never does it, and may not.
///
/// # Errors
/// The kernel's; or when other threads run, whose locks the child would find held for good.
pub fn split() -> io::Result<ForkedProcess> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other(
            "a process of several threads cannot be split",
        ));
    }
    // SAFETY: there is no other thread, so the child has all that it had before.
    match unsafe { libc::fork() } {
        0 => Ok(ForkedProcess::Child),
        child if child > 0 => Ok(ForkedProcess::Parent),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(
        clippy::disallowed_methods,
        reason = "a thread of a test, not of a VMM"
    )]
    #[test]
    fn a_process_of_several_threads_stays_one() {
        let error = std::thread::spawn(split).join().unwrap().unwrap_err();
        assert!(error.to_string().contains("several threads"), "{error}");
    }
}
