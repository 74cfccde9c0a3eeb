//! Sockets and other descriptors that whoever started us passed on (`sd_listen_fds(3)`).

use std::env;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// First inherited descriptor of the protocol (`SD_LISTEN_FDS_START`).
const FIRST_INHERITED: RawFd = 3;

/// More descriptors than anybody passes; a larger count in the environment is a mistake.
const MAX_INHERITED: usize = 64;

/// Why inherited descriptors could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// A variable does not hold what the protocol says.
    #[error("environment variable {name}={value:?}: want a number{}", limit.map(|l| format!(" of at most {l}")).unwrap_or_default())]
    Variable {
        /// Name of the variable, such as `LISTEN_FDS`.
        name: &'static str,
        /// Value of the variable as it was found.
        value: String,
        /// The largest number allowed.
        limit: Option<usize>,
    },
    /// A descriptor that was announced is not open.
    #[error("inherited descriptor {fd} is not usable")]
    Descriptor {
        /// The descriptor.
        fd: RawFd,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// Takes the descriptors announced by `LISTEN_PID` and `LISTEN_FDS`, in order, and sets
/// close-on-exec on them. Empty when none were announced, or not to this process.
///
/// Only the first call of a process gets them: a descriptor has one owner.
///
/// # Errors
/// The variables are malformed or name descriptors that are not open.
pub fn take_inherited() -> Result<Vec<OwnedFd>, ListenError> {
    static TAKEN: AtomicBool = AtomicBool::new(false);

    let count = announced(env::var("LISTEN_PID").ok(), env::var("LISTEN_FDS").ok())?;
    if count == 0 || TAKEN.swap(true, Ordering::SeqCst) {
        return Ok(Vec::new());
    }
    (FIRST_INHERITED..).take(count).map(take_one).collect()
}

/// How many descriptors the two variables announce to this process.
fn announced(pid: Option<String>, count: Option<String>) -> Result<usize, ListenError> {
    let (Some(pid), Some(count)) = (pid, count) else {
        return Ok(0);
    };
    let for_whom: u32 = pid.parse().map_err(|_| ListenError::Variable {
        name: "LISTEN_PID",
        value: pid,
        limit: None,
    })?;
    if for_whom != std::process::id() {
        return Ok(0);
    }
    match count.parse() {
        Ok(number) if number <= MAX_INHERITED => Ok(number),
        _ => Err(ListenError::Variable {
            name: "LISTEN_FDS",
            value: count,
            limit: Some(MAX_INHERITED),
        }),
    }
}

/// Takes the one descriptor that whoever started us passed on under number `fd` (3 or above), sets
/// close-on-exec on it and closes all others from 3 up. For program start, before anything is
/// opened. As with [`take_inherited`], only the first call of a process gets anything.
///
/// # Errors
/// The descriptor is not open, is one of the standard streams, or was taken already.
pub fn take_only(fd: RawFd) -> Result<OwnedFd, ListenError> {
    static TAKEN: AtomicBool = AtomicBool::new(false);

    let refused = |source| ListenError::Descriptor { fd, source };
    if fd < FIRST_INHERITED || TAKEN.swap(true, Ordering::SeqCst) {
        return Err(refused(io::ErrorKind::InvalidInput.into()));
    }
    let taken = take_one(fd)?;
    close_range(FIRST_INHERITED, fd - 1).map_err(refused)?;
    close_range(fd.saturating_add(1), RawFd::MAX).map_err(refused)?;
    Ok(taken)
}

/// Closes the descriptors from `first` to `last`, if there are any.
fn close_range(first: RawFd, last: RawFd) -> io::Result<()> {
    if first > last {
        return Ok(());
    }
    // SAFETY: no memory is involved; that nothing here has an owner is the condition of the caller,
    // the start of the program.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if closed < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn take_one(fd: RawFd) -> Result<OwnedFd, ListenError> {
    // SAFETY: F_SETFD on any number is harmless; a closed one gives EBADF.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        let source = io::Error::last_os_error();
        return Err(ListenError::Descriptor { fd, source });
    }
    // SAFETY: the descriptor is open (checked above), the starter gave it to this process for
    // keeps, and `TAKEN` makes sure that it gets one owner only.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn for_us() -> Option<String> {
        Some(std::process::id().to_string())
    }

    #[test]
    fn nothing_announced_is_nothing_taken() {
        assert_eq!(announced(None, None).unwrap(), 0);
        assert_eq!(announced(for_us(), None).unwrap(), 0);
    }

    #[test]
    fn descriptors_for_another_process_are_left_alone() {
        assert_eq!(announced(Some("1".into()), Some("3".into())).unwrap(), 0);
    }

    #[test]
    fn malformed_variables_are_refused() {
        assert!(announced(Some("me".into()), Some("1".into())).is_err());
        assert!(announced(for_us(), Some("-1".into())).is_err());
        assert!(announced(for_us(), Some("65".into())).is_err());
        assert_eq!(announced(for_us(), Some("64".into())).unwrap(), 64);
    }
}
