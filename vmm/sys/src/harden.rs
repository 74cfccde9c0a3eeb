//! Giving up what a VMM does not need. Every step only takes away and cannot be undone.

use std::io;
use std::os::fd::RawFd;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// A step of giving up privileges failed. Whoever hardens must not go on to run a guest.
#[derive(Debug, thiserror::Error)]
#[error("hardening: {call} failed")]
pub struct HardenError {
    /// Name of the system call or ioctl.
    pub call: &'static str,
    /// What the kernel said.
    #[source]
    pub source: io::Error,
}

/// Limits of a VMM's resources (`setrlimit(2)`, soft and hard alike).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open descriptors.
    pub open_files: u64,
    /// Bytes that a file may grow to; `None` leaves it. A VMM writes disks of any size, so this is
    /// for helper processes.
    pub file_bytes: Option<u64>,
    /// Processes and threads of this user id; `None` leaves it.
    pub processes: Option<u64>,
}

/// Forbids that an `execve` ever gives privileges (a precondition of seccomp without root).
///
/// # Errors
/// The kernel's.
pub fn forbid_new_privileges() -> Result<(), HardenError> {
    nix::sys::prctl::set_no_new_privs().map_err(|errno| failed("PR_SET_NO_NEW_PRIVS", errno))
}

/// Forbids core dumps and `ptrace` by other processes of the same user: guest memory is mapped
/// here.
///
/// # Errors
/// The kernel's.
pub fn forbid_dumps() -> Result<(), HardenError> {
    nix::sys::prctl::set_dumpable(false).map_err(|errno| failed("PR_SET_DUMPABLE", errno))?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(|errno| failed("RLIMIT_CORE", errno))
}

/// Sets resource limits.
///
/// # Errors
/// A limit is above the present hard limit and we may not raise it.
pub fn limit(limits: Limits) -> Result<(), HardenError> {
    let set = |resource, value, call| {
        setrlimit(resource, value, value).map_err(|errno| failed(call, errno))
    };
    set(Resource::RLIMIT_NOFILE, limits.open_files, "RLIMIT_NOFILE")?;
    if let Some(bytes) = limits.file_bytes {
        set(Resource::RLIMIT_FSIZE, bytes, "RLIMIT_FSIZE")?;
    }
    if let Some(processes) = limits.processes {
        set(Resource::RLIMIT_NPROC, processes, "RLIMIT_NPROC")?;
    }
    Ok(())
}

/// Takes away the right to have more than `most` descriptors open, if there is such a right.
///
/// # Errors
/// The kernel's.
pub fn limit_open_files(most: u64) -> Result<(), HardenError> {
    let resource = Resource::RLIMIT_NOFILE;
    let (_, hard) = getrlimit(resource).map_err(|errno| failed("getrlimit", errno))?;
    let most = most.min(hard);
    setrlimit(resource, most, most).map_err(|errno| failed("RLIMIT_NOFILE", errno))
}

/// Has the C library's allocator keep one heap for all threads. With several it opens files in the
/// midst of a program's life, to learn how many CPUs there are and whether heaps may shrink; and each
/// costs memory.
///
/// # Errors
/// The allocator has no such setting.
pub fn limit_malloc_arenas() -> Result<(), HardenError> {
    // SAFETY: plain integers only.
    if unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) } == 1 {
        return Ok(());
    }
    Err(failed("mallopt(M_ARENA_MAX)", nix::errno::Errno::ENOTSUP))
}

/// Drops all capabilities: bounding set (as far as we may), ambient, inheritable, permitted and
/// effective. Succeeds for a process that has none.
///
/// # Errors
/// The kernel's.
pub fn drop_capabilities() -> Result<(), HardenError> {
    drop_bounding_set()?;
    // SAFETY: plain integers only.
    let cleared = unsafe {
        libc::prctl(
            libc::PR_CAP_AMBIENT,
            libc::PR_CAP_AMBIENT_CLEAR_ALL,
            0,
            0,
            0,
        )
    };
    if cleared < 0 {
        return Err(last("PR_CAP_AMBIENT_CLEAR_ALL"));
    }
    capset_none()
}

/// Closes every descriptor from `first` up.
///
/// For a child between `fork` and `exec` and for program start only: descriptors that still have
/// an owner in this process must be below `first`.
///
/// # Errors
/// The kernel is older than 5.9.
pub fn close_from(first: RawFd) -> Result<(), HardenError> {
    let first = libc::c_uint::try_from(first)
        .map_err(|_| failed("close_range", nix::errno::Errno::EINVAL))?;
    // SAFETY: closing is what the caller asked for; no memory is involved. The documented
    // condition (no owner above `first`) keeps I/O safety.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
    if closed < 0 {
        return Err(last("close_range"));
    }
    Ok(())
}

/// Removes every capability from the bounding set. Without `CAP_SETPCAP` this is refused, and not
/// needed: no `execve` gives capabilities to a process that has none and `no_new_privs` set.
fn drop_bounding_set() -> Result<(), HardenError> {
    // The kernel says EINVAL for the first number that is no capability; 64 is the ABI's limit.
    for capability in 0..64 {
        // SAFETY: plain integers only.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } == 0 {
            continue;
        }
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::EINVAL) if capability > 0 => Ok(()),
            Some(libc::EPERM) => Ok(()),
            _ => Err(HardenError {
                call: "PR_CAPBSET_DROP",
                source: error,
            }),
        };
    }
    Ok(())
}

/// `struct __user_cap_header_struct` of `linux/capability.h`.
#[repr(C)]
struct CapHeader {
    version: u32,
    pid: libc::c_int,
}

/// `struct __user_cap_data_struct`; version 3 takes two, for 64 capabilities.
#[repr(C)]
#[derive(Clone, Copy)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// `_LINUX_CAPABILITY_VERSION_3`.
const CAPABILITY_VERSION: u32 = 0x2008_0522;

fn capset_none() -> Result<(), HardenError> {
    let header = CapHeader {
        version: CAPABILITY_VERSION,
        pid: 0,
    };
    let none = [CapData {
        effective: 0,
        permitted: 0,
        inheritable: 0,
    }; 2];
    // SAFETY: both structures have the layout of version 3 of the ABI and outlive the call, which
    // only reads them.
    let set = unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) };
    if set < 0 {
        return Err(last("capset"));
    }
    Ok(())
}

fn failed(call: &'static str, errno: nix::errno::Errno) -> HardenError {
    HardenError {
        call,
        source: errno.into(),
    }
}

fn last(call: &'static str) -> HardenError {
    HardenError {
        call,
        source: io::Error::last_os_error(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hardening is for ever, and capabilities are per thread: try it in a thread that ends.
    #[allow(
        clippy::disallowed_methods,
        reason = "a thread of a test, not of a VMM"
    )]
    fn in_a_thread_that_ends<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(work).join().unwrap()
    }

    fn own_status(field: &str) -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace().last().unwrap().to_owned()
    }

    #[test]
    fn no_capability_is_left() {
        let left = in_a_thread_that_ends(|| {
            drop_capabilities().unwrap();
            drop_capabilities().unwrap();
            ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"].map(own_status)
        });
        assert!(left.iter().all(|set| set == "0000000000000000"), "{left:?}");
    }

    #[test]
    fn new_privileges_are_forbidden() {
        let forbidden = in_a_thread_that_ends(|| {
            forbid_new_privileges().unwrap();
            own_status("NoNewPrivs:")
        });
        assert_eq!(forbidden, "1");
    }

    #[test]
    fn closing_from_a_negative_descriptor_is_refused() {
        assert!(close_from(-1).is_err());
    }
}
