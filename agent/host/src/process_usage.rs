//! What a process has used, from `/proc` (proc(5)).

use std::fs;
use std::io;

use agent_plan::VmmIdentity;
use nix::unistd::{SysconfVar, sysconf};

use crate::process::{self, Liveness};
use crate::usage::{ProcessUsage, VcpuUsage};

/// Threads that are looked at; a guest has 1024 vCPUs at most, and a VMM some threads of its own.
const MAX_THREADS: usize = 2048;

/// How the VMM calls its vCPUs' threads, before their numbers.
const VCPU_THREAD: &str = "vcpu";

const NS_PER_S: u64 = 1_000_000_000;

/// Figures of exactly this process; `None` when it is gone.
pub(crate) fn of(identity: &VmmIdentity) -> io::Result<Option<(ProcessUsage, Vec<VcpuUsage>)>> {
    let pid = identity.pid;
    let read = || -> io::Result<_> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let statm = fs::read_to_string(format!("/proc/{pid}/statm"))?;
        let (user_ns, system_ns) = cpu_times(&stat).ok_or_else(malformed)?;
        let resident_bytes = resident(&statm).ok_or_else(malformed)?;
        let usage = ProcessUsage {
            user_ns,
            system_ns,
            resident_bytes,
        };
        Ok((usage, vcpus(pid)?))
    };
    let figures = read();
    // Looked at last: were the pid another's by now, the figures would be, too.
    match process::liveness(identity)? {
        Liveness::Alive => figures.map(Some),
        Liveness::Dead => Ok(None),
    }
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "malformed figures below /proc")
}

/// The vCPUs' threads, by number.
fn vcpus(pid: u32) -> io::Result<Vec<VcpuUsage>> {
    let mut found = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task"))?.take(MAX_THREADS) {
        // A thread may end at any time.
        found.extend(thread.ok().and_then(|thread| vcpu(&thread.path())));
    }
    found.sort_by_key(|vcpu| vcpu.index);
    Ok(found)
}

fn vcpu(thread: &std::path::Path) -> Option<VcpuUsage> {
    let name = fs::read_to_string(thread.join("comm")).ok()?;
    let index = name.trim_end().strip_prefix(VCPU_THREAD)?.parse().ok()?;
    // Kernels without CONFIG_SCHED_INFO count in ticks only.
    let scheduled = fs::read_to_string(thread.join("schedstat")).ok();
    let scheduled = scheduled.as_deref().and_then(schedule);
    let (running_ns, delayed_ns) = match scheduled {
        Some((running_ns, delayed_ns)) => (running_ns, Some(delayed_ns)),
        None => {
            let stat = fs::read_to_string(thread.join("stat")).ok()?;
            let (user_ns, system_ns) = cpu_times(&stat)?;
            (user_ns + system_ns, None)
        }
    };
    Some(VcpuUsage {
        index,
        running_ns,
        delayed_ns,
    })
}

/// Time on a CPU and time in its queue, in nanoseconds, of `schedstat`.
fn schedule(text: &str) -> Option<(u64, u64)> {
    let mut fields = text.split_ascii_whitespace();
    let running_ns = fields.next()?.parse().ok()?;
    Some((running_ns, fields.next()?.parse().ok()?))
}

/// Fields 14 and 15 of `stat`, user and system, in nanoseconds.
fn cpu_times(stat: &str) -> Option<(u64, u64)> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    let ns_per_tick = NS_PER_S.checked_div(of_system(SysconfVar::CLK_TCK))?;
    Some((
        user.checked_mul(ns_per_tick)?,
        system.checked_mul(ns_per_tick)?,
    ))
}

/// Field 2 of `statm`, in bytes.
fn resident(statm: &str) -> Option<u64> {
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    pages.checked_mul(of_system(SysconfVar::PAGE_SIZE))
}

/// A constant of the system; 0 where there is none.
fn of_system(what: SysconfVar) -> u64 {
    let value = sysconf(what).ok().flatten();
    value
        .and_then(|value| u64::try_from(value).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_works_is_seen_to() {
        let identity = process::identify(std::process::id()).unwrap().unwrap();
        let (before, _) = of(&identity).unwrap().unwrap();
        let started = std::time::Instant::now();
        let mut sum = 0u64;
        let mut after = before;
        while after.user_ns + after.system_ns <= before.user_ns + before.system_ns {
            assert!(started.elapsed().as_secs() < 60, "{before:?} {sum}");
            sum = (0..1_000_000).fold(sum, |sum, next| std::hint::black_box(sum ^ next));
            after = of(&identity).unwrap().unwrap().0;
        }
        assert!(after.resident_bytes > 100 << 10, "{after:?}");
    }

    #[test]
    fn threads_of_vcpus_are_known_by_their_names() {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new()
            .name(String::from("vcpu17"))
            .spawn(move || {
                ready.send(()).unwrap();
                stopped.recv().unwrap_err();
            })
            .unwrap();
        is_ready.recv().unwrap();
        let identity = process::identify(std::process::id()).unwrap().unwrap();
        let (_, vcpus) = of(&identity).unwrap().unwrap();
        let found: Vec<u32> = vcpus.iter().map(|vcpu| vcpu.index).collect();
        assert_eq!(found, [17]);
        drop(stop);
        thread.join().unwrap();
    }

    #[test]
    fn another_process_under_the_same_pid_has_no_figures() {
        let mut identity = process::identify(std::process::id()).unwrap().unwrap();
        identity.start_time_ticks += 1;
        assert_eq!(of(&identity).unwrap(), None);
    }

    #[test]
    fn figures_are_taken_from_their_fields() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 300 50 7 8 20 0 1 0 4242 1 2";
        let (user_ns, system_ns) = cpu_times(stat).unwrap();
        assert_eq!(user_ns, 6 * system_ns);
        assert_eq!(schedule("12 34 5\n"), Some((12, 34)));
        assert_eq!(cpu_times("7 (a) S 1"), None);
        assert_eq!(schedule("12"), None);
    }
}
