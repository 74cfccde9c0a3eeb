//! Processes by identity: boot id, pid and start time. A pid alone is never enough.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use agent_plan::{BootId, VmmIdentity};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use tokio::signal::unix::{SignalKind, signal};

const BOOT_ID_PATH: &str = "/proc/sys/kernel/random/boot_id";

/// Whether the process of an identity still lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Liveness {
    /// The same boot, pid and start time as in the identity.
    Alive,
    /// It certainly does not: another boot, no such pid, another process under the pid, or a zombie.
    Dead,
}

/// The kernel's random id of this boot.
pub(crate) fn boot_id() -> io::Result<BootId> {
    Ok(BootId(fs::read_to_string(BOOT_ID_PATH)?.trim().to_owned()))
}

/// The identity of a process that lives now; `None` when there is none under this pid, or only a
/// zombie.
pub(crate) fn identify(pid: u32) -> io::Result<Option<VmmIdentity>> {
    let Some(stat) = stat(pid)? else {
        return Ok(None);
    };
    Ok((!stat.is_dead()).then_some(VmmIdentity {
        boot_id: boot_id()?,
        pid,
        start_time_ticks: stat.start_time_ticks,
    }))
}

/// The identity of the process that `pidfd` stands for and whose number is `pid`; `None` when it has
/// ended. As long as it has not, nobody else has its number.
pub(crate) fn identify_running(pid: u32, pidfd: &OwnedFd) -> io::Result<Option<VmmIdentity>> {
    let identity = identify(pid)?;
    // After what was read of it: until now the number was its own.
    Ok(if is_running(pidfd)? { identity } else { None })
}

/// Whether a process has not ended; one that has is readable, waited for or not.
pub(crate) fn is_running(pidfd: &OwnedFd) -> io::Result<bool> {
    let mut polled = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
    Ok(poll(&mut polled, PollTimeout::ZERO)? == 0)
}

/// Looks whether exactly this process still lives.
pub(crate) fn liveness(identity: &VmmIdentity) -> io::Result<Liveness> {
    if boot_id()? != identity.boot_id {
        return Ok(Liveness::Dead);
    }
    Ok(match stat(identity.pid)? {
        Some(stat) if stat.start_time_ticks == identity.start_time_ticks && !stat.is_dead() => {
            Liveness::Alive
        }
        _ => Liveness::Dead,
    })
}

/// Kills a process. That it is gone already is success. Whoever kills a VMM takes its turn first ([`crate::ends`]).
pub(crate) fn kill(process: &OwnedFd) -> io::Result<()> {
    match pidfd_send_signal(process, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A descriptor of the process, if it lives.
pub(crate) fn pidfd_of(identity: &VmmIdentity) -> io::Result<Option<OwnedFd>> {
    let Some(pid) = i32::try_from(identity.pid).ok().and_then(Pid::from_raw) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no pid"));
    };
    let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        Err(rustix::io::Errno::SRCH) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    // With the descriptor open the number cannot become another's, and a signal reaches no other.
    Ok((liveness(identity)? == Liveness::Alive).then_some(pidfd))
}

/// The pid of a process in the innermost pid namespace that it is in: what it knows itself by. `None`
/// when it is gone.
pub(crate) fn innermost_pid(pid: u32) -> io::Result<Option<u32>> {
    let status = gone_is_none(fs::read_to_string(format!("/proc/{pid}/status")))?;
    Ok(status.as_deref().and_then(parse_innermost_pid))
}

/// Each namespace has its pid in `NSpid`, the innermost the last.
fn parse_innermost_pid(status: &str) -> Option<u32> {
    let mut lines = status.lines();
    let pids = lines.find_map(|line| line.strip_prefix("NSpid:"))?;
    pids.split_ascii_whitespace().next_back()?.parse().ok()
}

/// Waits for the end of a process that may have become a child of this one, as all orphans do of the
/// first process of a container, and takes its status so that nothing of it is left. Its own parent has
/// ended.
pub(crate) async fn reap(process: &OwnedFd) -> io::Result<()> {
    // Before the first observation: no end is missed.
    let mut ends = signal(SignalKind::child())?;
    loop {
        match waitid(
            WaitId::PidFd(process.as_fd()),
            WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
        ) {
            // Somebody else's child is somebody else's to wait for.
            Ok(Some(_)) | Err(rustix::io::Errno::CHILD) => return Ok(()),
            Ok(None) => {}
            Err(error) => return Err(error.into()),
        }
        ends.recv().await;
    }
}

/// The cgroup paths of a process (`/proc/PID/cgroup`); empty when it is gone.
pub(crate) fn cgroups(pid: u32) -> io::Result<String> {
    gone_is_none(fs::read_to_string(format!("/proc/{pid}/cgroup"))).map(Option::unwrap_or_default)
}

struct Stat {
    state: char,
    start_time_ticks: u64,
}

impl Stat {
    fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

fn stat(pid: u32) -> io::Result<Option<Stat>> {
    let Some(text) = gone_is_none(fs::read_to_string(format!("/proc/{pid}/stat")))? else {
        return Ok(None);
    };
    parse_stat(&text)
        .map(Some)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "malformed /proc/PID/stat"))
}

/// Fields 3 and 22 of proc_pid_stat(5). The command in field 2 may hold blanks and parentheses, so
/// the last parenthesis is what counts.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let start_time_ticks = fields.nth(18)?.parse().ok()?;
    Some(Stat {
        state,
        start_time_ticks,
    })
}

/// Reading below /proc/PID says ENOENT before and ESRCH after the process vanished.
fn gone_is_none<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(nix::libc::ESRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_command_name_with_parentheses_does_not_shift_the_fields() {
        let text = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 1 2";
        let stat = parse_stat(text).unwrap();
        assert_eq!((stat.state, stat.start_time_ticks), ('S', 4242));
        assert!(parse_stat("7 (a) S 1 2").is_none());
    }

    #[test]
    fn a_process_knows_itself_by_the_pid_of_its_own_namespace() {
        let status = "Name:\tx\nPid:\t4711\nNSpid:\t4711\t22\t1\nThreads:\t1\n";
        assert_eq!(parse_innermost_pid(status), Some(1));
        assert_eq!(parse_innermost_pid("Name:\tx\n"), None);
        let own = innermost_pid(std::process::id()).unwrap();
        assert_eq!(own, Some(std::process::id()));
    }

    #[tokio::test]
    async fn a_child_that_ended_leaves_nothing_behind() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        let process = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        reap(&process).await.unwrap();
        assert!(identify(child.id()).unwrap().is_none());
        // Nobody is there to be waited for.
        reap(&process).await.unwrap();
        child.wait().unwrap_err();
    }

    #[test]
    fn a_pid_is_nobodys_once_its_process_has_ended() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        let process = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        let identity = identify_running(child.id(), &process).unwrap().unwrap();
        assert_eq!(identity, identify(child.id()).unwrap().unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        // This process stands for the one that got the number next.
        let own = std::process::id();
        assert!(identify(own).unwrap().is_some());
        assert!(identify_running(own, &process).unwrap().is_none());
    }

    #[test]
    fn this_process_is_alive_and_another_start_time_is_not_this_process() {
        let mut identity = identify(std::process::id()).unwrap().unwrap();
        assert_eq!(liveness(&identity).unwrap(), Liveness::Alive);
        identity.start_time_ticks += 1;
        assert_eq!(liveness(&identity).unwrap(), Liveness::Dead);
    }

    #[test]
    fn a_process_of_another_boot_is_dead_whatever_its_pid() {
        let mut identity = identify(std::process::id()).unwrap().unwrap();
        identity.boot_id = BootId("00000000-0000-0000-0000-000000000000".to_owned());
        assert_eq!(liveness(&identity).unwrap(), Liveness::Dead);
    }

    #[test]
    fn a_process_that_only_shares_the_pid_is_not_killed() {
        let mut child = Command::new("sleep")
            .arg("60")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let identity = identify(child.id()).unwrap().unwrap();
        let mut other = identity.clone();
        other.start_time_ticks += 1;
        assert!(pidfd_of(&other).unwrap().is_none());
        assert_eq!(liveness(&identity).unwrap(), Liveness::Alive);
        let process = pidfd_of(&identity).unwrap().unwrap();
        kill(&process).unwrap();
        // A zombie until it is waited for, and dead nevertheless.
        while liveness(&identity).unwrap() == Liveness::Alive {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        kill(&process).unwrap();
        assert!(pidfd_of(&identity).unwrap().is_none());
    }
}
