//! `kvmlet launch-vmm`: starts a VMM that is nobody's child, says its process id and ends.
//!
//! Standard input is the listening control socket and standard error takes the VMM's log: both go on
//! to the VMM. To standard output goes one line, the VMM's process id as the agent sees it. As root the
//! VMM is the first process of a pid namespace, and its user namespace is mapped from here, because
//! nobody within has the right to. What else makes a VMM of a process is done by that process:
//! [`become_vmm`](super::become_vmm).

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};

use nix::sched::{CloneFlags, setns};
use nix::unistd::geteuid;

use super::become_vmm::{self, GO_ON, MAY_I};
use super::drop_privileges::enter_namespaces;

/// The hidden subcommand's name.
pub(crate) const SUBCOMMAND: &str = "launch-vmm";

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
        let mut line = vec![SUBCOMMAND.into()];
        line.extend(self.words());
        line
    }

    /// Without a subcommand.
    pub(super) fn words(&self) -> [OsString; 3] {
        [
            self.program.clone().into(),
            self.root.clone().into(),
            self.user.to_string().into(),
        ]
    }

    /// Reads [`Self::words`]; what follows them is left.
    pub(super) fn parse(arguments: &mut impl Iterator<Item = OsString>) -> Option<Self> {
        Some(Self {
            program: arguments.next()?.into(),
            root: arguments.next()?.into(),
            user: arguments.next()?.to_str()?.parse().ok()?,
        })
    }
}

pub(super) fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let parsed = LaunchArguments::parse(&mut arguments);
    let Some(parsed) = parsed.filter(|_| arguments.next().is_none()) else {
        drop(writeln!(
            io::stderr(),
            "usage: {SUBCOMMAND} PROGRAM ROOT USER   (started by the agent, not by people)"
        ));
        return ExitCode::from(2);
    };
    match launch(&parsed) {
        Ok(pid) => match writeln!(io::stdout(), "{pid}") {
            Ok(()) => ExitCode::SUCCESS,
            // The agent is gone. The next one finds the VMM by its control socket.
            Err(_) => ExitCode::FAILURE,
        },
        Err(error) => {
            drop(writeln!(
                io::stderr(),
                "the VMM can not be launched: {error}"
            ));
            ExitCode::FAILURE
        }
    }
}

/// Starts the process that becomes the VMM.
fn launch(arguments: &LaunchArguments) -> io::Result<u32> {
    let is_root = geteuid().is_root();
    // Root itself, or the number that `setuid` takes for "as it is": the VMM would be what the agent is.
    if is_root && !(1..u32::MAX).contains(&arguments.user) {
        return Err(io::Error::other(format!(
            "{} is no user that a VMM may be",
            arguments.user
        )));
    }
    // Of children: the next process is the first there.
    if is_root && !enter_namespaces(CloneFlags::CLONE_NEWPID)? {
        warn("this host allows no pid namespace: the VMM shares the agent's")?;
    }
    if is_root {
        let (child, socket) = start(arguments, true)?;
        if let Some(pid) = let_go(child, socket, Some(arguments.user))? {
            return Ok(pid);
        }
        warn("this host allows no user namespace: the VMM shares the agent's")?;
        // The first process of a pid namespace takes it along when it ends.
        setns(
            fs::File::open("/proc/self/ns/pid")?,
            CloneFlags::CLONE_NEWPID,
        )?;
        enter_namespaces(CloneFlags::CLONE_NEWPID)?;
    }
    let (child, socket) = start(arguments, false)?;
    let_go(child, socket, None)?.ok_or_else(|| io::Error::other("it wants a user namespace"))
}

/// The process, and a socket to it.
fn start(arguments: &LaunchArguments, with_users: bool) -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let child = Command::new("/proc/self/exe")
        .arg(become_vmm::SUBCOMMAND)
        .args(arguments.words())
        .arg(with_users.to_string())
        .stdout(Stdio::from(OwnedFd::from(theirs)))
        .spawn()?;
    Ok((child, ours))
}

/// Waits until the process asks whether to go on, and tells it to; before, with a user, it tells the
/// user namespace of the process who is who there: itself, and whoever may control it. Its pid;
/// nothing when it can have no such namespace.
fn let_go(
    mut child: Child,
    mut socket: UnixStream,
    mapped: Option<u32>,
) -> io::Result<Option<u32>> {
    let pid = child.id();
    let mut asked = [0];
    let is_there = socket.read(&mut asked)? == 1 && asked == [MAY_I];
    if is_there && mapped.is_none_or(|user| write_maps(pid, user).is_ok()) {
        socket.write_all(&[GO_ON])?;
        return Ok(Some(pid));
    }
    drop(socket);
    // It ends by itself, with an error of its own unless it was the namespace.
    let status = child.wait()?;
    if status.code() == Some(i32::from(become_vmm::NO_USER_NAMESPACE)) {
        return Ok(None);
    }
    Err(io::Error::other(format!(
        "the process that was to become it ended with {status}"
    )))
}

/// Every id stays what it is; others are nobody's.
fn write_maps(pid: u32, user: u32) -> io::Result<()> {
    let own = format!("{user} {user} 1\n");
    let agent = geteuid().as_raw();
    let users = if agent == user {
        own.clone()
    } else {
        format!("{own}{agent} {agent} 1\n")
    };
    fs::write(format!("/proc/{pid}/gid_map"), own)?;
    fs::write(format!("/proc/{pid}/uid_map"), users)
}

fn warn(text: &str) -> io::Result<()> {
    writeln!(io::stderr(), "{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &[OsString]) -> Option<LaunchArguments> {
        LaunchArguments::parse(&mut line.iter().cloned())
    }

    #[test]
    fn arguments_survive_the_command_line() {
        let arguments = LaunchArguments {
            program: "/usr/lib/kvmlet/kvmlet-vmm".into(),
            root: "/run/kvmlet/vmm/a/1/root".into(),
            user: 70_000,
        };
        let line = arguments.to_command_line();
        assert_eq!(parse(&line[1..]), Some(arguments));
    }

    #[test]
    fn a_wrong_command_line_is_refused() {
        let words = |line: &[&str]| line.iter().map(Into::into).collect::<Vec<OsString>>();
        assert_eq!(parse(&words(&["a", "b"])), None);
        assert_eq!(parse(&words(&["a", "b", "root"])), None);
    }
}
