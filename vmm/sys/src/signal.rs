//! Signals: as descriptors for event loops, and as the kick that takes a thread out of a system call.

use std::io;

pub use nix::sys::signal::Signal;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, sigaction};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Blocks `signals` in the calling thread and in the threads it starts later, and makes a
/// descriptor that becomes readable when one is pending. Non-blocking, close-on-exec.
///
/// Call it before any other thread runs, else the signal is delivered to one that does not block
/// it.
///
/// # Errors
/// No descriptor is free.
pub fn signals_as_fd(signals: &[Signal]) -> io::Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in signals {
        set.add(*signal);
    }
    nix::sys::signal::sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), None)?;
    let descriptor = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    Ok(descriptor)
}

/// Lets `signal` interrupt system calls (`EINTR`, no restart) and do nothing else, so that sending
/// it to a vCPU thread ends `KVM_RUN`.
///
/// # Errors
/// The signal cannot be handled (`SIGKILL`, `SIGSTOP`).
pub fn install_kick(signal: libc::c_int) -> io::Result<()> {
    extern "C" fn nothing(_: libc::c_int) {}

    // SAFETY: a zeroed sigaction is valid (no flags, empty mask); the handler does nothing, so it
    // is async-signal-safe.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
        libc::sigaction(signal, &raw const action, std::ptr::null_mut())
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Ignores `signal` for the whole process, such as `SIGPIPE`, so that writing to a closed console
/// is an error and not the end.
///
/// # Errors
/// The signal cannot be ignored (`SIGKILL`, `SIGSTOP`).
pub fn ignore(signal: Signal) -> io::Result<()> {
    let action = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    // SAFETY: SIG_IGN runs no code.
    unsafe { sigaction(signal, &action) }?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_signal_is_read_from_its_descriptor() {
        let descriptor = signals_as_fd(&[Signal::SIGUSR2]).unwrap();
        // SAFETY: sends a signal that is blocked to this thread.
        assert_eq!(unsafe { libc::raise(libc::SIGUSR2) }, 0);
        let info = descriptor.read_signal().unwrap().unwrap();
        assert_eq!(info.ssi_signo, u32::try_from(libc::SIGUSR2).unwrap());
        assert!(descriptor.read_signal().unwrap().is_none());
    }

    #[test]
    fn a_kick_does_not_end_the_process() {
        install_kick(libc::SIGRTMIN() + 3).unwrap();
        // SAFETY: sends a signal that has a handler to this process.
        assert_eq!(unsafe { libc::raise(libc::SIGRTMIN() + 3) }, 0);
    }

    #[test]
    fn sigkill_cannot_be_turned_into_a_kick() {
        assert!(install_kick(libc::SIGKILL).is_err());
    }
}
