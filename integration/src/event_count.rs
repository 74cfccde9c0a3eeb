//! How often something happens in the kernel for a process: its trace events, counted by a buffer of
//! their own. Nothing waits for anybody, as it does under a tracer.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context;
use nix::mount::{MsFlags, mount};

const TRACING: &str = "/sys/kernel/tracing";

/// System calls, by whichever thread.
pub const SYSTEM_CALLS: &str = "raw_syscalls/sys_enter";
/// The CPU's ways out of a guest, where KVM notes them: one that is emulated by software does not.
pub const EXITS: &str = "kvm/kvm_exit";
/// Instructions of the guest that KVM carries out, of which each is a way out: accesses to devices, and
/// on a software-emulated KVM the guest's privileged code.
pub const EMULATED: &str = "kvm/kvm_emulate_insn";
/// Those that KVM leaves to its user.
pub const USER_EXITS: &str = "kvm/kvm_userspace_exit";

/// What the buffer keeps of events; the others are only counted.
const BUFFER_KIB: &str = "64";

/// Why events cannot be counted here, if so. Mounts the file system that counts them where nobody has.
#[must_use]
pub fn missing() -> Option<String> {
    let instances = Path::new(TRACING).join("instances");
    if !nix::unistd::geteuid().is_root() {
        return Some("counting events of the kernel needs root".to_owned());
    }
    if instances.is_dir() {
        return None;
    }
    let none = None::<&str>;
    mount(
        Some("tracefs"),
        TRACING,
        Some("tracefs"),
        MsFlags::empty(),
        none,
    )
    .err()
    .map(|error| format!("{TRACING} is not mounted and cannot be: {error}"))
}

/// A count of one kind of event that the threads of one process cause. Dropping it ends the count.
#[derive(Debug)]
pub struct EventCount {
    instance: PathBuf,
}

impl EventCount {
    /// Counts `event` from now on, for the threads that process `pid` has now.
    ///
    /// # Errors
    /// When the kernel does not trace, or not this.
    pub fn begin(event: &str, pid: u32) -> anyhow::Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);

        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("kvmlet-{}-{number}", std::process::id());
        let instance = Path::new(TRACING).join("instances").join(name);
        fs::create_dir(&instance).with_context(|| instance.display().to_string())?;
        let count = Self { instance };
        count.write("buffer_size_kb", BUFFER_KIB)?;
        count.write("set_event_pid", &threads(pid)?)?;
        count.write(&format!("events/{event}/enable"), "1")?;
        Ok(count)
    }

    /// Number of events so far.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn so_far(&self) -> anyhow::Result<u64> {
        let mut sum = 0;
        for cpu in fs::read_dir(self.instance.join("per_cpu"))? {
            sum += recorded(&fs::read_to_string(cpu?.path().join("stats"))?)?;
        }
        Ok(sum)
    }

    fn write(&self, file: &str, value: &str) -> anyhow::Result<()> {
        let path = self.instance.join(file);
        fs::write(&path, value).with_context(|| path.display().to_string())
    }
}

impl Drop for EventCount {
    fn drop(&mut self) {
        // One that stays is empty and does nothing; its name tells whose it was.
        fs::remove_dir(&self.instance).ok();
    }
}

fn threads(pid: u32) -> anyhow::Result<String> {
    let mut threads = String::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        threads.push_str(&task?.file_name().to_string_lossy());
        threads.push(' ');
    }
    Ok(threads)
}

/// Events that a CPU's buffer has and those that had to make room.
fn recorded(stats: &str) -> anyhow::Result<u64> {
    let of = |key: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(key));
        let number = line.and_then(|rest| rest.trim().parse::<u64>().ok());
        number.with_context(|| format!("no {key} in {stats:?}"))
    };
    Ok(of("entries:")? + of("overrun:")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_made_room_are_counted() {
        let stats = "entries: 12\noverrun: 30\ncommit overrun: 0\nbytes: 960\n";
        assert_eq!(recorded(stats).expect("counted"), 42);
        assert!(recorded("entries: 1\n").is_err());
    }

    #[test]
    fn calls_of_a_process_are_counted() {
        crate::skip_if!(missing());
        let count = EventCount::begin(SYSTEM_CALLS, std::process::id()).expect("a count");
        let before = count.so_far().expect("a number");
        // Only the threads that were there count; this is one.
        for _ in 0..100 {
            fs::metadata("/").expect("a directory");
        }
        let after = count.so_far().expect("a number");
        assert!(after >= before + 100, "{before} {after}");
    }
}
