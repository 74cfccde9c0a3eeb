//! Filters of system calls (`seccomp(2)`), as programs that are ready made.

use std::io;

pub use libc::sock_filter as Instruction;

use crate::harden::HardenError;

/// Filters the calling thread's system calls, and those of all threads it starts from now on, by
/// `program`, besides the filters that are there already. A process that has not forbidden new
/// privileges needs a capability for it.
///
/// # Errors
/// The kernel has no seccomp filters, or does not take the program.
pub fn filter(program: &[Instruction]) -> Result<(), HardenError> {
    let failed = |source| HardenError {
        call: "seccomp(SECCOMP_SET_MODE_FILTER)",
        source,
    };
    let length = u16::try_from(program.len())
        .map_err(|_| failed(io::Error::from(io::ErrorKind::InvalidInput)))?;
    let program = libc::sock_fprog {
        len: length,
        // The kernel only reads.
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel reads one sock_fprog and the instructions it points to, which are borrowed
    // for the call; it keeps a copy.
    let set = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            &raw const program,
        )
    };
    if set < 0 {
        return Err(failed(io::Error::last_os_error()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harden::forbid_new_privileges;

    const fn instruction(code: u16, jf: u8, k: u32) -> Instruction {
        Instruction { code, jt: 0, jf, k }
    }

    /// Load the number of the call; `getppid` gives EXDEV; all others are allowed.
    const PROGRAM: [Instruction; 4] = [
        instruction(0x20, 0, 0),
        instruction(0x15, 1, 110),
        instruction(0x06, 0, libc::SECCOMP_RET_ERRNO | 18),
        instruction(0x06, 0, libc::SECCOMP_RET_ALLOW),
    ];

    #[allow(
        clippy::disallowed_methods,
        reason = "a thread of a test, not of a VMM"
    )]
    #[test]
    fn a_filter_decides_for_its_thread() {
        let outcome = std::thread::spawn(|| {
            forbid_new_privileges().unwrap();
            filter(&PROGRAM).unwrap();
            // SAFETY: getppid takes no arguments.
            let parent = unsafe { libc::syscall(libc::SYS_getppid) };
            (parent, io::Error::last_os_error().raw_os_error())
        })
        .join()
        .unwrap();
        assert_eq!(outcome, (-1, Some(libc::EXDEV)));
        assert_ne!(nix::unistd::getppid().as_raw(), -1);
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "a thread of a test, not of a VMM"
    )]
    #[test]
    fn what_is_no_program_is_refused() {
        let outcome = std::thread::spawn(|| {
            forbid_new_privileges().unwrap();
            [filter(&[]).is_err(), filter(&PROGRAM[..3]).is_err()]
        })
        .join()
        .unwrap();
        // Without a program's end there may be no filter either.
        assert_eq!(outcome, [true, true]);
    }
}
