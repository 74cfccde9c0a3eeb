//! Ending many VMMs: a few at a time, as the agent does. A kernel that has to free the seccomp filters of a thousand at once
//! may stand still (docs/survival.md, "Many guests that end at once").

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// As many as the agent ends at once (`ENDS_AT_ONCE` in agent/host/src/ends.rs).
const AT_ONCE: usize = 32;

/// How long the next wait for those before them: one that waits for a device may never end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Kills the agents of this pid namespace, which would start guests anew, and then its VMMs. Takes ten seconds for each 32 of them
/// at most.
pub fn end_agents_and_vmms() {
    end_all("kvmlet");
    end_all("kvmlet-vmm");
}

/// Kills every process that was started by this name.
fn end_all(program: &str) {
    for batch in pids_of(program).chunks(AT_ONCE) {
        let ending = batch.iter().filter_map(|pid| kill(*pid, program));
        wait_for(ending.collect(), PATIENCE);
    }
}

fn pids_of(program: &str) -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| is_named(*pid, program))
        .collect()
}

/// Whether the first word of its command line, less the directory, is this name. Nothing is when the process has ended.
fn is_named(pid: i32, program: &str) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let first = line.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = std::str::from_utf8(first).ok().map(Path::new);
    name.and_then(Path::file_name)
        .is_some_and(|name| name == program)
}

/// Kills a process; what tells of its end, unless it has ended already.
fn kill(pid: i32, program: &str) -> Option<OwnedFd> {
    let process = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    // With the descriptor open the number cannot become another's.
    if !is_named(pid, program) {
        return None;
    }
    pidfd_send_signal(&process, Signal::KILL).ok()?;
    Some(process)
}

/// Waits until all have ended, or for so long.
fn wait_for(mut ending: Vec<OwnedFd>, patience: Duration) {
    let until = Instant::now() + patience;
    while !ending.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        let mut polled: Vec<PollFd<'_>> = ending
            .iter()
            .map(|process| PollFd::new(process.as_fd(), PollFlags::POLLIN))
            .collect();
        match poll(&mut polled, left) {
            Err(Errno::EINTR) => continue,
            Ok(1..) => {}
            Ok(_) | Err(_) => {
                let left = ending.len();
                // Whoever reads this may be gone.
                drop(writeln!(
                    io::stderr(),
                    "{left} processes that were killed have not ended"
                ));
                return;
            }
        }
        let lives: Vec<bool> = polled
            .iter()
            .map(|process| process.any() == Some(false))
            .collect();
        let mut lives = lives.into_iter();
        ending.retain(|_| lives.next() == Some(true));
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    /// Starts processes of a program that has this name and sleeps.
    fn start(directory: &Path, name: &str, count: usize) -> Vec<Child> {
        let program = directory.join(name);
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let start = || {
            let process = Command::new(&program).arg("600").spawn().unwrap();
            // For a moment after its start a process has no command line.
            while !is_named(process.id().cast_signed(), name) {
                std::thread::yield_now();
            }
            process
        };
        std::iter::repeat_with(start).take(count).collect()
    }

    #[test]
    fn all_of_a_name_are_ended_and_no_other() {
        let directory = tempfile::tempdir().unwrap();
        // Names that nobody else has: tests run beside each other.
        let own = std::process::id();
        let (name, longer) = (format!("batches-{own}"), format!("batches-{own}-vmm"));
        let mut meant = start(directory.path(), &name, AT_ONCE + 8);
        let mut others = start(directory.path(), &longer, 1);
        end_all(&name);
        for process in &mut meant {
            assert!(process.try_wait().unwrap().is_some());
        }
        assert!(others[0].try_wait().unwrap().is_none());
        end_all(&longer);
        others[0].wait().unwrap();
        end_all(&name);
    }

    #[test]
    fn one_that_does_not_end_is_waited_for_no_longer_than_that() {
        let mut process = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = Pid::from_child(&process);
        let descriptor = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        wait_for(vec![descriptor], Duration::from_millis(10));
        assert!(process.try_wait().unwrap().is_none());
        process.kill().unwrap();
        process.wait().unwrap();
    }
}
