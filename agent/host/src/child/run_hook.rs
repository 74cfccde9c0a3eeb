//! `kvmlet run-hook PROGRAM POINT`: gives up what a hook has no use for and becomes it, for
//! [`crate::hook_program`].
//!
//! A hook is the operator's, and its input is written by the user of the guest: it has nobody's rights, no network,
//! bounded memory, time and processes, and writes no files. It may read what everybody may read.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use nix::sched::CloneFlags;
use nix::sys::prctl::set_no_new_privs;
use nix::sys::resource::Resource;
use nix::unistd::{geteuid, setsid};

use crate::helpers;
use agent_confined::{NOBODY, become_user, enter_namespaces, limit};

/// The hidden subcommand's name.
pub(crate) const SUBCOMMAND: &str = "run-hook";

/// Interpreters reserve much that they never touch.
const ADDRESS_SPACE_BYTES: u64 = 1 << 30;
const CPU_SECONDS: u64 = 60;
const DESCRIPTORS: u64 = 64;

/// Where a hook finds programs.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

pub(super) fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let (Some(program), Some(point)) = (arguments.next(), arguments.next()) else {
        return failed(&io::Error::from(io::ErrorKind::InvalidInput));
    };
    if let Err(error) = confine() {
        return failed(&error);
    }
    let error = Command::new(program)
        .arg(point)
        .env_clear()
        .env("PATH", PATH)
        .current_dir("/")
        .exec();
    failed(&error)
}

/// The one who asked shows this line.
fn failed(error: &io::Error) -> ExitCode {
    // That it cannot be written changes nothing: the exit code tells.
    drop(writeln!(io::stderr(), "it cannot be started: {error}"));
    ExitCode::FAILURE
}

fn confine() -> io::Result<()> {
    // Whatever it starts is ended with it.
    setsid()?;
    limit(Resource::RLIMIT_CORE, 0)?;
    let namespaces = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC;
    // Who is not root may have these only within a user namespace of its own.
    if geteuid().is_root() || !enter_namespaces(namespaces | CloneFlags::CLONE_NEWUSER)? {
        enter_namespaces(namespaces)?;
    }
    become_user(NOBODY, NOBODY)?;
    limit(Resource::RLIMIT_AS, ADDRESS_SPACE_BYTES)?;
    limit(Resource::RLIMIT_DATA, helpers::HOOK_DATA_BYTES)?;
    limit(Resource::RLIMIT_CPU, CPU_SECONDS)?;
    limit(Resource::RLIMIT_FSIZE, 0)?;
    limit(Resource::RLIMIT_NOFILE, DESCRIPTORS)?;
    Ok(set_no_new_privs()?)
}
