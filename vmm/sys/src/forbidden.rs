//! Handler of `SIGSYS`: logs the system call that the process's filters do not allow
//! (`SECCOMP_RET_TRAP`), and ends the process.
//!
//! The call is not made. Its thread gets `SIGSYS` instead, logs which call it was, and ends the
//! process by the same signal: by another call that is not allowed, because the first process of a pid
//! namespace is not ended by a signal that it sends itself. Nothing that an attacker can still do in that time is more than
//! what filters allow: the handler is there for one call only, filters do not let it be replaced, and
//! a thread that blocks the signal is killed by the kernel at once.

use std::fmt::{self, Write as _};
use std::io;

use crate::threads::{ThreadKind, kind_of_this_thread};

/// Installs the handler of `SIGSYS`: from now on a system call that a filter traps is logged on standard error, in the form of the VMM's
/// log, and ends the process.
///
/// # Errors
/// The kernel's; none is known.
pub fn install_sigsys_handler() -> io::Result<()> {
    // SAFETY: a zeroed sigaction is valid (empty mask); the handler has the signature that SA_SIGINFO
    // asks for, and does only what may be done in handlers: see there.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        // Once: whatever comes second ends the process by itself.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESETHAND | libc::SA_NODEFER;
        action.sa_sigaction = report as Handler as libc::sighandler_t;
        libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut())
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// No kernel has a call of that number, so no table allows it.
const NO_CALL: libc::c_long = 0xfff;
/// Exit status where no filter is in force: as a shell tells of `SIGSYS`.
const ENDED: libc::c_int = 128 + libc::SIGSYS;

type Handler = extern "C" fn(libc::c_int, *const libc::siginfo_t, *const libc::c_void);

/// Allocates nothing and takes no lock: it may interrupt whoever does.
extern "C" fn report(
    _signal: libc::c_int,
    _info: *const libc::siginfo_t,
    context: *const libc::c_void,
) {
    // SAFETY: with SA_SIGINFO the kernel passes a ucontext_t that lives until the handler returns.
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let register = |index: libc::c_int| {
        usize::try_from(index)
            .ok()
            .and_then(|index| registers.get(index).copied())
            .unwrap_or(0)
    };
    let call = Call {
        // Registers are as they were before the call, its number among them.
        number: register(libc::REG_RAX),
        arguments: [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10]
            .map(register)
            .map(|argument| argument & i64::from(u32::MAX)),
        thread: kind_of_this_thread().map_or("other", ThreadKind::name),
    };
    let mut line = Line::default();
    // What does not fit is left away.
    let _ = writeln!(line, "{call}");
    // SAFETY: write only reads the bytes; all of these are async-signal-safe. There is no call of that
    // number: should it be made, it does nothing.
    unsafe {
        libc::write(libc::STDERR_FILENO, line.bytes.as_ptr().cast(), line.length);
        // The handler is there no more, so the kernel ends the process, whichever it is.
        libc::syscall(NO_CALL);
        libc::_exit(ENDED);
    }
}

/// A call, as far as filters look at it.
struct Call {
    number: i64,
    /// The lower halves of the first four.
    arguments: [i64; 4],
    thread: &'static str,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            number,
            arguments: [first, second, third, fourth],
            thread,
        } = self;
        write!(
            f,
            "level=\"error\" event=\"forbidden-call\" detail=\"system call {number} \
             ({first:#x}, {second:#x}, {third:#x}, {fourth:#x})\" thread={thread:?}"
        )
    }
}

/// A line in memory of its own.
struct Line {
    bytes: [u8; 256],
    length: usize,
}

impl Default for Line {
    fn default() -> Self {
        Self {
            bytes: [0; 256],
            length: 0,
        }
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        let room = self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_line_has_room() {
        let call = Call {
            number: i64::MIN,
            arguments: [i64::from(u32::MAX); 4],
            thread: "a word of twenty-four.",
        };
        let mut line = Line::default();
        writeln!(line, "{call}").unwrap();
        let text = std::str::from_utf8(&line.bytes[..line.length]).unwrap();
        assert!(text.contains("0xffffffff, 0xffffffff)\" thread="), "{text}");
        assert!(text.ends_with("four.\"\n"), "{text}");
    }

    #[test]
    fn what_has_no_room_is_refused() {
        let mut line = Line::default();
        assert!(line.write_str(&"x".repeat(257)).is_err());
        assert!(line.write_str(&"x".repeat(256)).is_ok());
        assert!(line.write_str("x").is_err());
    }
}
