//! `kvmlet become-vmm`: turns this process into a VMM that has nothing but its control socket.
//!
//! [`launch_vmm`](super::launch_vmm) starts it. Standard input is the listening control socket, which
//! the VMM gets under a number of its own; standard error takes the VMM's log; standard output is a
//! socket to the launcher. The process leaves the agent's session, its namespaces, its root file system
//! and its user, and then becomes the VMM's program. Pid and start time, by which the agent knows it,
//! stay what they are.
//!
//! It never goes on without its launcher, which the agent ends when a launch takes too long: until it
//! asks for permission to continue it dies with the launcher, and the launcher's end is an answer, too.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::CloneFlags;
use nix::sys::prctl::{set_no_new_privs, set_pdeathsig};
use nix::sys::resource::Resource;
use nix::sys::signal::Signal;
use nix::unistd::{
    Uid, chdir, chroot, dup, dup2_stdin, dup2_stdout, fexecve, geteuid, pivot_root, setsid,
};

use super::launch_arguments::LaunchArguments;
use agent_confined::{become_user, enter_namespaces, limit};

/// The hidden subcommand's name.
pub(super) const SUBCOMMAND: &str = "become-vmm";

/// Exit status when a user namespace was wanted and is not to be had.
pub(super) const NO_USER_NAMESPACE: u8 = 3;

/// Asks the launcher for permission to continue; in a new user namespace no ids are mapped before.
pub(super) const ASK_TO_CONTINUE: u8 = b'?';
/// Permission to continue: from the launcher to the VMM's process, and from the agent to the launcher.
pub(crate) const CONTINUE: u8 = b'y';

/// The VMM leaves the standard streams alone: its socket is the first after them or later.
const AFTER_STANDARD_STREAMS: i32 = 3;

/// Descriptors of one VMM: 64 of its configuration, an eventfd or three for each queue.
const OPEN_FILES: u64 = 4096;

/// Why this process does not become a VMM.
enum Failed {
    /// There is no user namespace for it.
    NoUsers,
    Io(io::Error),
}

impl<E: Into<io::Error>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::Io(error.into())
    }
}

pub(super) fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let parsed = LaunchArguments::parse(&mut arguments);
    let with_users = arguments.next().map(|word| word == "true");
    let (Some(parsed), Some(with_users)) = (parsed, with_users) else {
        return ExitCode::from(2);
    };
    match launch(&parsed, with_users) {
        Err(Failed::NoUsers) => ExitCode::from(NO_USER_NAMESPACE),
        Err(Failed::Io(error)) => {
            // Nobody may read it; the exit code says it, too.
            drop(writeln!(
                io::stderr(),
                "the VMM cannot be launched: {error}"
            ));
            ExitCode::FAILURE
        }
        Ok(never) => match never {},
    }
}

/// Never returns when all goes well.
fn launch(
    arguments: &LaunchArguments,
    with_users: bool,
) -> Result<std::convert::Infallible, Failed> {
    set_pdeathsig(Signal::SIGKILL)?;
    let agent = geteuid();
    let program =
        File::open(&arguments.program).map_err(|error| naming(&arguments.program, &error))?;
    // Without close-on-exec: this is what the VMM inherits.
    let control = fcntl(io::stdin(), FcntlArg::F_DUPFD(AFTER_STANDARD_STREAMS))?;
    dup2_stdin(File::open("/dev/null")?)?;
    let starter = dup(io::stdout())?;
    dup2_stdout(File::open("/dev/null")?)?;
    match setsid() {
        // EPERM: this process leads a group already, which is as good.
        Ok(_) | Err(Errno::EPERM) => {}
        Err(error) => return Err(error.into()),
    }
    limit(Resource::RLIMIT_CORE, 0)?;
    limit(Resource::RLIMIT_NOFILE, OPEN_FILES)?;
    if agent.is_root() {
        isolate(&arguments.root)?;
    }
    // After all that takes the rights of the host's root.
    if with_users && !enter_namespaces(CloneFlags::CLONE_NEWUSER)? {
        return Err(Failed::NoUsers);
    }
    // After the users, so that the network is theirs: whoever made them may do there what it may not do on the
    // host, such as open the raw sockets by which routers are advertised. The VMM keeps no such right.
    if agent.is_root() {
        enter_or_log(CloneFlags::CLONE_NEWNET, "network")?;
    }
    wait_for_permission(UnixStream::from(starter), with_users)?;
    become_user(arguments.user, arguments.user)?;
    set_no_new_privs()?;
    Ok(become_program(&program, control, agent)?)
}

fn become_program(
    program: &File,
    control: i32,
    agent: Uid,
) -> io::Result<std::convert::Infallible> {
    let command_line = [
        c"kvmlet-vmm".to_owned(),
        c"--control-fd".to_owned(),
        CString::new(control.to_string())?,
        c"--controller-uid".to_owned(),
        CString::new(agent.as_raw().to_string())?,
    ];
    let environment: [CString; 0] = [];
    Ok(fexecve(program, &command_line, &environment)?)
}

/// Waits until the launcher permits it to continue. From here on the launcher may end before this process does.
fn wait_for_permission(mut launcher: UnixStream, with_users: bool) -> Result<(), Failed> {
    set_pdeathsig(None)?;
    launcher.write_all(&[ASK_TO_CONTINUE])?;
    let mut answer = [0];
    if launcher.read(&mut answer)? == 1 && answer == [CONTINUE] {
        Ok(())
    } else if with_users {
        Err(Failed::NoUsers)
    } else {
        Err(io::Error::other("the launcher is gone").into())
    }
}

/// Namespaces of its own and an empty, read-only root, where the host allows it.
fn isolate(root: &Path) -> io::Result<()> {
    enter_or_log(CloneFlags::CLONE_NEWIPC, "IPC")?;
    enter_or_log(CloneFlags::CLONE_NEWUTS, "host name")?;
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
        // The initial ramdisk cannot be left by pivot_root(2), only be covered.
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

/// Enters a new namespace, or writes to the log that the host allows none.
fn enter_or_log(namespace: CloneFlags, what: &str) -> io::Result<()> {
    if enter_namespaces(namespace)? {
        return Ok(());
    }
    writeln!(
        io::stderr(),
        "this host allows no {what} namespace: the VMM shares the agent's"
    )
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
