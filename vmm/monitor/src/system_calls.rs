//! The system calls that this process may make, all threads alike.
//!
//! What is missing on purpose: everything that opens, links or executes files, makes sockets or
//! looks at other processes. A call that is not on the list fails with `EPERM` instead of ending the
//! guest; an attacker gains no more from it.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompFilter, SeccompRule, TargetArch, apply_filter,
};

/// The filter could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// It can not be compiled.
    #[error("the system call filter can not be made")]
    Compile(#[from] seccompiler::BackendError),
    /// The kernel refused it.
    #[error("the system call filter can not be installed")]
    Install(#[from] seccompiler::Error),
}

/// Files, sockets and eventfds that are open already; descriptors received by `SCM_RIGHTS`. `fallocate`
/// is for discards and zeros on disks, and for guest memory that goes back to the host: by a reset on
/// the machine's thread, by a balloon on the thread that serves devices.
const DESCRIPTORS: [i64; 32] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_accept4,
    libc::SYS_shutdown,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_close,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_lseek,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_dup,
    libc::SYS_timerfd_settime,
];

/// Waiting, and new descriptors that lead nowhere.
const WAITING: [i64; 13] = [
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_eventfd2,
    libc::SYS_memfd_create,
    libc::SYS_timerfd_create,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_restart_syscall,
];

/// Disks' io_uring. A ring is made when its disk is first used, hence setup (once a disk) and
/// register (its one file, its one eventfd); enter is a call a batch. What a ring can do goes past
/// this filter: the code that fills rings (`vmm_sys::io_uring`) queues reads, writes, `fdatasync`,
/// `fallocate` and cancellations, on descriptors that are open already. A host that wants none of it
/// sets `kernel.io_uring_disabled`, and disks go on without.
const RINGS: [i64; 3] = [
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_enter,
];

/// Memory and threads of this process.
const PROCESS: [i64; 31] = [
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    // vCPUs, devices' threads and all others are pinned when the configuration says where.
    libc::SYS_sched_setaffinity,
    // Nodes of the host that the configuration names: which there are, and memory onto them.
    libc::SYS_get_mempolicy,
    libc::SYS_mbind,
    libc::SYS_prctl,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_geteuid,
    libc::SYS_tgkill,
    libc::SYS_getrandom,
    libc::SYS_gettimeofday,
    libc::SYS_membarrier,
    libc::SYS_prlimit64,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Allows nothing but the list from now on, in this thread and those it starts.
///
/// # Errors
/// When the kernel has no seccomp filters.
pub fn restrict() -> Result<(), FilterError> {
    Ok(apply_filter(&program()?)?)
}

fn program() -> Result<BpfProgram, FilterError> {
    let allowed: BTreeMap<i64, Vec<SeccompRule>> = DESCRIPTORS
        .into_iter()
        .chain(WAITING)
        .chain(RINGS)
        .chain(PROCESS)
        .map(|call| (call, Vec::new()))
        .collect();
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let filter = SeccompFilter::new(allowed, refused, SeccompAction::Allow, TargetArch::x86_64)?;
    Ok(filter.try_into()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_can_not_be_opened_and_memory_can_be_had() {
        let outcome = std::thread::spawn(|| {
            restrict().unwrap();
            let opened = std::fs::File::open("/dev/null").map(drop);
            let memory = vec![1u8; 8 << 20];
            (opened.unwrap_err().kind(), memory.len())
        })
        .join()
        .unwrap();
        assert_eq!(outcome, (std::io::ErrorKind::PermissionDenied, 8 << 20));
    }
}
