//! Landlock: no file can be opened any more, whatever the file system's own permissions say.
//!
//! A ruleset that handles every right and has no rule forbids all of it. Descriptors that are open
//! already, or are handed over by others, stay as they are.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::harden::HardenError;

/// `LANDLOCK_CREATE_RULESET_VERSION` of `linux/landlock.h`.
const VERSION: libc::c_uint = 1;

/// `struct landlock_ruleset_attr`. Kernels before a field was added take it as long as it is zero.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RulesetAttributes {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

/// All that version `abi` of Landlock can forbid (`Documentation/userspace-api/landlock.rst`).
fn everything(abi: u32) -> RulesetAttributes {
    let fs_rights = match abi {
        0 => 0,
        // Execute, read, write, make and remove files of all types.
        1 => 13,
        // ... REFER
        2 => 14,
        // ... TRUNCATE
        3 | 4 => 15,
        // ... IOCTL_DEV
        _ => 16,
    };
    // BIND_TCP and CONNECT_TCP.
    let net_rights = if abi >= 4 { 2 } else { 0 };
    // Abstract Unix sockets and signals.
    let scopes = if abi >= 6 { 2 } else { 0 };
    let bits = |count: u32| (1u64 << count) - 1;
    RulesetAttributes {
        handled_access_fs: bits(fs_rights),
        handled_access_net: bits(net_rights),
        scoped: bits(scopes),
    }
}

/// Forbids the calling thread, and those it starts from now on, to open, make, change or execute any
/// file, and as far as this kernel's Landlock goes also TCP, abstract Unix sockets and signals to
/// processes that are not confined with it. Returns the version of Landlock; `None` where the kernel
/// has none, and then nothing is forbidden.
///
/// # Errors
/// The kernel's. New privileges must be forbidden already.
pub fn forbid_files() -> Result<Option<u32>, HardenError> {
    let Some(abi) = version()? else {
        return Ok(None);
    };
    let attributes = everything(abi);
    // SAFETY: the kernel reads one structure of the size that is given.
    let ruleset = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const attributes,
            size_of::<RulesetAttributes>(),
            0,
        )
    };
    let ruleset = i32::try_from(ruleset)
        .ok()
        .filter(|fd| *fd >= 0)
        .ok_or_else(|| last("landlock_create_ruleset"))?;
    // SAFETY: the kernel has just made this descriptor for us.
    let ruleset = unsafe { OwnedFd::from_raw_fd(ruleset) };
    // SAFETY: plain integers only.
    let restricted =
        unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) };
    if restricted < 0 {
        return Err(last("landlock_restrict_self"));
    }
    Ok(Some(abi))
}

/// The version of the kernel's Landlock, if it has one that is switched on.
fn version() -> Result<Option<u32>, HardenError> {
    let nothing = std::ptr::null::<RulesetAttributes>();
    // SAFETY: with this flag the kernel reads no memory.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0, VERSION) };
    match u32::try_from(version) {
        Ok(version) => Ok(Some(version)),
        Err(_) => {
            let error = last("landlock_create_ruleset(VERSION)");
            match error.source.raw_os_error() {
                // Not compiled in; not among the security modules of this boot; forbidden by a
                // filter that knows no Landlock.
                Some(libc::ENOSYS | libc::EOPNOTSUPP | libc::EPERM) => Ok(None),
                _ => Err(error),
            }
        }
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
    use std::fs::File;
    use std::io::Write;

    use super::*;
    use crate::harden::forbid_new_privileges;

    #[allow(
        clippy::disallowed_methods,
        reason = "a thread of a test, not of a VMM"
    )]
    #[test]
    fn no_file_can_be_opened_and_open_ones_work() {
        let mut open = tempfile::tempfile().unwrap();
        let outcome = std::thread::spawn(move || {
            forbid_new_privileges().unwrap();
            let version = forbid_files().unwrap();
            open.write_all(b"still").unwrap();
            open.set_len(1).unwrap();
            let kinds = ["/", "/dev/null", "/etc/passwd", "/proc/self/status"]
                .map(|path| File::open(path).map(drop).map_err(|error| error.kind()));
            (version, kinds)
        })
        .join()
        .unwrap();
        match outcome {
            (Some(_), kinds) => {
                assert_eq!(kinds, [Err(io::ErrorKind::PermissionDenied); 4]);
            }
            (None, kinds) => {
                test_skip::report("this kernel has no Landlock");
                assert!(kinds.iter().all(Result::is_ok));
            }
        }
        assert!(File::open("/").is_ok());
    }

    #[test]
    fn a_newer_version_forbids_no_less() {
        let mut before = everything(0);
        assert_eq!(before, RulesetAttributes::default());
        for abi in 1..10 {
            let now = everything(abi);
            assert_eq!(before.handled_access_fs & !now.handled_access_fs, 0);
            assert_eq!(before.handled_access_net & !now.handled_access_net, 0);
            assert_eq!(before.scoped & !now.scoped, 0);
            before = now;
        }
        assert_eq!(before.handled_access_fs, 0xffff);
    }
}
