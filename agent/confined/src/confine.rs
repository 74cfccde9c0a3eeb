//! The sandbox of helpers that read what strangers wrote: nobody's rights, no network, bounded memory,
//! time and output, and the system calls that reading, decoding and writing take.

use std::io;

use nix::libc;
use nix::sched::CloneFlags;
use nix::sys::prctl::{set_dumpable, set_no_new_privs, set_pdeathsig};
use nix::sys::resource::Resource;
use nix::sys::signal::Signal;
use nix::unistd::geteuid;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use super::drop_privileges::{become_user, enter_namespaces, limit};

/// `nobody` and `nogroup` on every distribution.
pub const NOBODY: u32 = 65534;

/// Resource limits of a helper.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Its address space.
    pub address_space_bytes: u64,
    /// Its CPU time.
    pub cpu_seconds: u64,
    /// The largest file that it writes.
    pub output_bytes: u64,
}

/// Gives up everything but the descriptors that this process has. It can open nothing from here on.
/// It ends with the thread that started it.
///
/// # Errors
/// When the kernel refuses; the process may have given up a part by then, and must not go on.
pub fn confine(bounds: Bounds) -> io::Result<()> {
    confine_with(bounds, &[])
}

/// As [`confine`], with system calls beyond those of all helpers.
///
/// # Errors
/// As [`confine`].
pub fn confine_with(bounds: Bounds, calls: &[libc::c_long]) -> io::Result<()> {
    isolate()?;
    // A change of user resets it, so after that.
    set_pdeathsig(Signal::SIGKILL)?;
    limit(Resource::RLIMIT_AS, bounds.address_space_bytes)?;
    limit(Resource::RLIMIT_CPU, bounds.cpu_seconds)?;
    limit(Resource::RLIMIT_FSIZE, bounds.output_bytes)?;
    limit(Resource::RLIMIT_NOFILE, 256)?;
    limit(Resource::RLIMIT_NPROC, 0)?;
    set_no_new_privs()?;
    allow_only(FILES.iter().chain(calls))
}

fn isolate() -> io::Result<()> {
    set_dumpable(false)?;
    limit(Resource::RLIMIT_CORE, 0)?;
    let namespaces = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC;
    // Who is not root may have these only within a user namespace of its own.
    if geteuid().is_root() || !enter_namespaces(namespaces | CloneFlags::CLONE_NEWUSER)? {
        enter_namespaces(namespaces)?;
    }
    become_user(NOBODY, NOBODY)
}

/// The same for a helper that serves for as long as its agent runs, by sockets that it is handed: nothing bounds its
/// time, and it reads no files.
///
/// # Errors
/// As [`confine`].
pub fn confine_server() -> io::Result<()> {
    isolate()?;
    // A change of user resets it, so after that.
    set_pdeathsig(Signal::SIGKILL)?;
    limit(Resource::RLIMIT_AS, SERVER_BYTES)?;
    limit(Resource::RLIMIT_NPROC, 0)?;
    set_no_new_privs()?;
    allow_only(SOCKETS.iter())
}

/// Address space of a server.
const SERVER_BYTES: u64 = 256 << 20;

/// What is not listed fails with EPERM.
fn allow_only<'a>(calls: impl Iterator<Item = &'a libc::c_long>) -> io::Result<()> {
    let filter = filter(calls).map_err(io::Error::other)?;
    seccompiler::apply_filter(&filter).map_err(io::Error::other)
}

/// Reading, decoding and writing.
const FILES: [libc::c_long; 28] = [
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_lseek,
    libc::SYS_ftruncate,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_fcntl,
    libc::SYS_close,
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_getrandom,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Hearing and answering, and writing numbers.
const SOCKETS: [libc::c_long; 22] = [
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_ctl,
    libc::SYS_clock_gettime,
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_close,
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_getrandom,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

fn filter<'a>(
    calls: impl Iterator<Item = &'a libc::c_long>,
) -> Result<BpfProgram, seccompiler::BackendError> {
    SeccompFilter::new(
        calls.map(|call| (*call, Vec::new())).collect(),
        SeccompAction::Errno(libc::EPERM.unsigned_abs()),
        SeccompAction::Allow,
        seccompiler::TargetArch::x86_64,
    )?
    .try_into()
}
