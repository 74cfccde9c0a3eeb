//! `kvmlet launch-vmm`: starts a VMM that is nobody's child, sends its process id to the agent and exits.
//!
//! Standard input is the listening control socket and standard error takes the VMM's log: both go on
//! to the VMM. Standard output is a socket to the agent, which permits this process to continue and gets one message: the VMM's
//! process id as the agent sees it, and a descriptor of the process (pidfd), because a number alone may be another
//! process's by the time it is read. Both ends of that socket are one build of one program, by `/proc/self/exe`, also while a
//! package is upgraded. As root the VMM is the first process of a pid namespace, and its user namespace is mapped from here, because
//! nobody within has the right to. What else makes a VMM of a process is done by that process:
//! [`become_vmm`](super::become_vmm).

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitCode, Stdio};

use nix::sched::{CloneFlags, setns};
use nix::unistd::{dup, geteuid};
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::become_vmm::{self, ASK_TO_CONTINUE, CONTINUE};
use super::launch_arguments::LaunchArguments;
use agent_confined::{enter_namespaces, receive_with, send_with};

/// The hidden subcommand's name.
pub(crate) const SUBCOMMAND: &str = "launch-vmm";

impl LaunchArguments {
    /// The command line after the program's name.
    pub(crate) fn to_command_line(&self) -> Vec<OsString> {
        let mut line = vec![SUBCOMMAND.into()];
        line.extend(self.words());
        line
    }
}

pub(super) fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let parsed = LaunchArguments::parse(&mut arguments);
    let Some(parsed) = parsed.filter(|_| arguments.next().is_none()) else {
        // Nobody may read it; the exit code says it, too.
        drop(writeln!(
            io::stderr(),
            "usage: {SUBCOMMAND} PROGRAM ROOT USER   (started by the agent, not by people)"
        ));
        return ExitCode::from(2);
    };
    match wait_for_permission().and_then(|()| launch(&parsed)) {
        Ok(vmm) => match vmm.send(&io::stdout()) {
            Ok(()) => ExitCode::SUCCESS,
            // The agent is gone. The next one finds the VMM by its control socket.
            Err(_) => ExitCode::FAILURE,
        },
        Err(error) => {
            // Nobody may read it; the exit code says it, too.
            drop(writeln!(
                io::stderr(),
                "the VMM cannot be launched: {error}"
            ));
            ExitCode::FAILURE
        }
    }
}

/// A process that was started and not waited for.
#[derive(Debug)]
pub(crate) struct Launched {
    pub(crate) pid: u32,
    pub(crate) pidfd: OwnedFd,
}

/// Longest message: a number.
const MAX_MESSAGE_BYTES: usize = 16;

impl Launched {
    /// Of a child that nobody has waited for, so that its number is certainly its own.
    fn of(child: &Child) -> io::Result<Self> {
        let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
        let pid = child.id();
        Ok(Self { pid, pidfd })
    }

    /// Sends it in one message.
    fn send(&self, socket: &impl AsFd) -> io::Result<()> {
        let text = self.pid.to_string();
        send_with(
            socket,
            text.as_bytes(),
            &[self.pidfd.as_fd()],
            SendFlags::empty(),
        )
    }

    /// Receives what the launcher sent; it has ended. `None` when that was something else, or nothing.
    pub(crate) fn receive(socket: &UnixStream) -> io::Result<Option<Self>> {
        let mut text = [0; MAX_MESSAGE_BYTES];
        let (bytes, mut descriptors) = match receive_with(socket, &mut text, RecvFlags::DONTWAIT) {
            Ok(received) => received,
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let text = text.get(..bytes).unwrap_or_default();
        let pid = std::str::from_utf8(text)
            .ok()
            .and_then(|text| text.trim_end().parse().ok());
        Ok(pid
            .zip(descriptors.pop())
            .map(|(pid, pidfd)| Self { pid, pidfd }))
    }
}

/// Waits until the agent has moved this process to the cgroup of guests. An agent that dies before it allows that closes the
/// socket: then nothing is started here, and the next agent starts anew.
fn wait_for_permission() -> io::Result<()> {
    let mut socket = UnixStream::from(dup(io::stdout())?);
    let mut answer = [0];
    if socket.read(&mut answer)? == 1 && answer == [CONTINUE] {
        return Ok(());
    }
    Err(io::Error::other("the agent is gone"))
}

/// Starts the process that becomes the VMM.
fn launch(arguments: &LaunchArguments) -> io::Result<Launched> {
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
        if let Some(vmm) = map_ids_and_release(child, socket, Some(arguments.user))? {
            return Ok(vmm);
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
    map_ids_and_release(child, socket, None)?
        .ok_or_else(|| io::Error::other("it wants a user namespace"))
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

/// Waits until the child asks to continue, writes `uid_map` and `gid_map` of its user namespace if it is to have one
/// for the user `mapped`, and lets it continue. `None` when the host allows no user namespace.
fn map_ids_and_release(
    mut child: Child,
    mut socket: UnixStream,
    mapped: Option<u32>,
) -> io::Result<Option<Launched>> {
    let vmm = Launched::of(&child)?;
    let pid = vmm.pid;
    let mut asked = [0];
    let is_there = socket.read(&mut asked)? == 1 && asked == [ASK_TO_CONTINUE];
    if is_there && mapped.is_none_or(|user| write_maps(pid, user).is_ok()) {
        socket.write_all(&[CONTINUE])?;
        return Ok(Some(vmm));
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

/// Maps the ids of the child's user and of the agent, which may control the child, to themselves. All others are
/// unmapped.
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
    fn an_answer_is_a_number_with_a_descriptor_and_a_number_alone_is_nothing() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        assert!(Launched::receive(&ours).unwrap().is_none());
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        Launched::of(&child).unwrap().send(&theirs).unwrap();
        let launched = Launched::receive(&ours).unwrap().unwrap();
        assert_eq!(launched.pid, child.id());
        assert!(crate::process::is_running(&launched.pidfd).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!crate::process::is_running(&launched.pidfd).unwrap());
        // Of a process that lives, too.
        writeln!(theirs, "{}", std::process::id()).unwrap();
        assert!(Launched::receive(&ours).unwrap().is_none());
        drop(theirs);
        assert!(Launched::receive(&ours).unwrap().is_none());
    }

    #[test]
    fn a_wrong_command_line_is_refused() {
        let words = |line: &[&str]| line.iter().map(Into::into).collect::<Vec<OsString>>();
        assert_eq!(parse(&words(&["a", "b"])), None);
        assert_eq!(parse(&words(&["a", "b", "root"])), None);
    }
}
