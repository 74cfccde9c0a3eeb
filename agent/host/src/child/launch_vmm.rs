//! `kvmlet launch-vmm`: turns this process into a VMM that has nothing but its control socket.
//!
//! Standard input is the listening control socket, which the VMM gets under a number of its own;
//! standard error takes the VMM's log. The process
//! leaves the agent's session, its namespaces, its root file system and its user, and then becomes
//! the VMM's program. Pid and start time, by which the agent knows it, stay what they are.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::CloneFlags;
use nix::sys::prctl::set_no_new_privs;
use nix::sys::resource::Resource;
use nix::unistd::{chdir, chroot, dup2_stdin, fexecve, geteuid, pivot_root, setsid};

use super::drop_privileges::{become_user, enter_namespaces, limit};

/// The hidden subcommand's name.
pub(crate) const SUBCOMMAND: &str = "launch-vmm";

/// The VMM leaves the standard streams alone: its socket is the first after them or later.
const AFTER_STANDARD_STREAMS: i32 = 3;

/// Descriptors of one VMM: 64 of its configuration, an eventfd or three for each queue.
const OPEN_FILES: u64 = 4096;

/// What the agent tells the helper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LaunchArguments {
    /// The VMM's program.
    pub(crate) program: PathBuf,
    /// An empty directory that becomes the VMM's root.
    pub(crate) root: PathBuf,
    /// User and group that the VMM runs as, when the agent is root.
    pub(crate) user: u32,
}

impl LaunchArguments {
    /// The command line after the program's name.
    pub(crate) fn to_command_line(&self) -> Vec<OsString> {
        vec![
            SUBCOMMAND.into(),
            self.program.clone().into(),
            self.root.clone().into(),
            self.user.to_string().into(),
        ]
    }

    fn parse(mut arguments: impl Iterator<Item = OsString>) -> Option<Self> {
        let parsed = Self {
            program: arguments.next()?.into(),
            root: arguments.next()?.into(),
            user: arguments.next()?.to_str()?.parse().ok()?,
        };
        arguments.next().is_none().then_some(parsed)
    }
}

pub(super) fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(arguments) = LaunchArguments::parse(arguments) else {
        drop(writeln!(
            io::stderr(),
            "usage: {SUBCOMMAND} PROGRAM ROOT USER   (started by the agent, not by people)"
        ));
        return ExitCode::from(2);
    };
    let Err(error) = launch(&arguments);
    drop(writeln!(
        io::stderr(),
        "the VMM can not be launched: {error}"
    ));
    ExitCode::FAILURE
}

/// Never returns when all goes well.
fn launch(arguments: &LaunchArguments) -> io::Result<std::convert::Infallible> {
    let agent = geteuid();
    let program =
        File::open(&arguments.program).map_err(|error| naming(&arguments.program, &error))?;
    // Without close-on-exec: this is what the VMM inherits.
    let control = fcntl(io::stdin(), FcntlArg::F_DUPFD(AFTER_STANDARD_STREAMS))?;
    dup2_stdin(File::open("/dev/null")?)?;
    match setsid() {
        // EPERM: this process leads a group already, which is as good.
        Ok(_) | Err(Errno::EPERM) => {}
        Err(error) => return Err(error.into()),
    }
    limit(Resource::RLIMIT_CORE, 0)?;
    limit(Resource::RLIMIT_NOFILE, OPEN_FILES)?;
    if geteuid().is_root() {
        isolate(&arguments.root)?;
    }
    become_user(arguments.user, arguments.user)?;
    set_no_new_privs()?;
    let command_line = [
        c"kvmlet-vmm".to_owned(),
        c"--control-fd".to_owned(),
        CString::new(control.to_string())?,
        c"--controller-uid".to_owned(),
        CString::new(agent.as_raw().to_string())?,
    ];
    let environment: [CString; 0] = [];
    Ok(fexecve(&program, &command_line, &environment)?)
}

/// Namespaces of its own and an empty, read-only root, where the host allows it.
fn isolate(root: &Path) -> io::Result<()> {
    for (namespace, what) in [
        (CloneFlags::CLONE_NEWNET, "network"),
        (CloneFlags::CLONE_NEWIPC, "IPC"),
        (CloneFlags::CLONE_NEWUTS, "host name"),
    ] {
        if !enter_namespaces(namespace)? {
            writeln!(
                io::stderr(),
                "this host allows no {what} namespace: the VMM shares the agent's"
            )?;
        }
    }
    if !enter_namespaces(CloneFlags::CLONE_NEWNS)? {
        writeln!(
            io::stderr(),
            "this host allows no mount namespace: the VMM shares the agent's root"
        )?;
        return Ok(());
    }
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(
        Some("none"),
        root,
        Some("tmpfs"),
        flags,
        Some("size=4k,nr_inodes=2,mode=0555"),
    )
    .map_err(|error| naming(root, &error.into()))?;
    chdir(root)?;
    match pivot_root(".", ".") {
        Ok(()) => umount2(".", MntFlags::MNT_DETACH)?,
        // The initial ramdisk can not be left by pivot_root(2), only be covered.
        Err(Errno::EINVAL) => {
            mount(Some("."), "/", none, MsFlags::MS_MOVE, none)?;
            chroot(".")?;
        }
        Err(error) => return Err(error.into()),
    }
    chdir("/")?;
    let read_only = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | flags;
    mount(none, "/", none, read_only, none)?;
    Ok(())
}

fn naming(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!(
            "{}: {error}",
            String::from_utf8_lossy(path.as_os_str().as_bytes())
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_survive_the_command_line() {
        let arguments = LaunchArguments {
            program: "/usr/lib/kvmlet/kvmlet-vmm".into(),
            root: "/run/kvmlet/vmm/a/1/root".into(),
            user: 70_000,
        };
        let line = arguments.to_command_line();
        assert_eq!(
            LaunchArguments::parse(line.into_iter().skip(1)),
            Some(arguments)
        );
    }

    #[test]
    fn a_wrong_command_line_is_refused() {
        let parse = |line: &[&str]| LaunchArguments::parse(line.iter().map(Into::into));
        assert_eq!(parse(&["a", "b"]), None);
        assert_eq!(parse(&["a", "b", "root"]), None);
        assert_eq!(parse(&["a", "b", "1", "2"]), None);
    }
}
