//! Giving up what a helper does not need.

use std::io;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::{Gid, Uid, geteuid, setgroups, setresgid, setresuid};

/// Unshares what may be unshared. A host or container that does not allow it is not an error: the
/// namespaces are one wall of several.
///
/// # Errors
/// When the kernel fails in another way than by not allowing it.
pub fn enter_namespaces(flags: CloneFlags) -> io::Result<bool> {
    match unshare(flags) {
        Ok(()) => Ok(true),
        Err(Errno::EPERM | Errno::ENOSYS | Errno::EINVAL | Errno::ENOSPC) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Becomes another user, without supplementary groups. Only root can; anybody else stays who they
/// are.
///
/// # Errors
/// When the kernel refuses it to root.
pub fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    setgroups(&[])?;
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)?;
    Ok(())
}

/// Sets soft and hard limit.
///
/// # Errors
/// When the limit that there is is lower.
pub fn limit(resource: Resource, value: u64) -> io::Result<()> {
    Ok(setrlimit(resource, value, value)?)
}
