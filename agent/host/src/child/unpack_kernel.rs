//! `kvmlet unpack-kernel`: reads a kernel on standard input, writes its ELF to standard output.
//!
//! Kernels come from whoever wrote the manifest or the image, and decoders are what attackers feed
//! first. So this runs as nobody, without network, with little memory, time and output, and with
//! the system calls that reading, decoding and writing take.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;

use agent_images::kernel::{UnpackLimits, unpack_kernel};
use nix::libc;
use nix::sched::CloneFlags;
use nix::sys::prctl::{set_dumpable, set_no_new_privs};
use nix::sys::resource::Resource;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use super::drop_privileges::{become_user, enter_namespaces, limit};
use crate::failure::chain;

/// The hidden subcommand's name.
pub(crate) const SUBCOMMAND: &str = "unpack-kernel";

/// `nobody` and `nogroup` on every distribution.
const NOBODY: u32 = 65534;

/// 128 MiB of zstd window, 96 MiB of xz, 16 MiB of LZ4 buffers: one of them, and the program.
const ADDRESS_SPACE_BYTES: u64 = 512 << 20;

/// A 60 MiB kernel takes half a second; emulated hosts are fifty times slower.
const CPU_SECONDS: u64 = 60;

pub(super) fn main() -> ExitCode {
    match unpack() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The parent shows this line to the user. That it can not be written changes nothing.
            drop(writeln!(io::stderr(), "{}", chain(error.as_ref())));
            ExitCode::FAILURE
        }
    }
}

fn unpack() -> Result<(), Box<dyn std::error::Error>> {
    let limits = UnpackLimits::default();
    confine(&limits)?;
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    unpack_kernel(&mut input, &mut output, limits)?;
    Ok(())
}

fn confine(limits: &UnpackLimits) -> io::Result<()> {
    set_dumpable(false)?;
    limit(Resource::RLIMIT_CORE, 0)?;
    enter_namespaces(
        CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC,
    )?;
    become_user(NOBODY, NOBODY)?;
    limit(Resource::RLIMIT_AS, ADDRESS_SPACE_BYTES)?;
    limit(Resource::RLIMIT_CPU, CPU_SECONDS)?;
    limit(Resource::RLIMIT_FSIZE, limits.output_bytes)?;
    limit(Resource::RLIMIT_NOFILE, 16)?;
    limit(Resource::RLIMIT_NPROC, 0)?;
    set_no_new_privs()?;
    seccompiler::apply_filter(&filter().map_err(io::Error::other)?).map_err(io::Error::other)
}

/// What is not listed fails with EPERM.
fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let allowed = [
        libc::SYS_read,
        libc::SYS_readv,
        libc::SYS_pread64,
        libc::SYS_write,
        libc::SYS_writev,
        libc::SYS_lseek,
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
    SeccompFilter::new(
        allowed.into_iter().map(|call| (call, Vec::new())).collect(),
        SeccompAction::Errno(libc::EPERM.unsigned_abs()),
        SeccompAction::Allow,
        seccompiler::TargetArch::x86_64,
    )?
    .try_into()
}
