//! Whether the kernel killed a VMM for want of memory.
//!
//! A process that is killed leaves no exit record. Its cgroup counts such kills, but systemd takes the
//! cgroup away as soon as it is empty: so the count is watched while the VMM lives, and what it says in the
//! end is noted in a file.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::cgroup::GUESTS;
use crate::layout::absent_is_none;
use crate::process;

/// Where cgroup v2 is mounted.
const ROOT: &str = "/sys/fs/cgroup";

/// The kernel's counts.
const EVENTS: &str = "memory.events";

/// What a cgroup allows that has no limit.
const NO_LIMIT: u64 = u64::MAX;

/// Number and interval of polls for a kill once memory has run out: the kernel reports one change of a
/// file in 10 milliseconds, and when it reports the kill the cgroup may be gone.
const POLLS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(1);

/// Longest note that is read.
const MAX_NOTE_BYTES: u64 = 512;

/// A VMM was killed for want of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OomKill {
    /// Whose memory it was that ran out, for people.
    pub(crate) detail: String,
}

impl OomKill {
    /// What a cgroup that is still there says.
    pub(crate) fn of_cgroup(cgroup: &Path) -> io::Result<Option<Self>> {
        let Some(events) = absent_is_none(fs::read_to_string(cgroup.join(EVENTS)))? else {
            return Ok(None);
        };
        Ok(Self::of_events(&events, || limit_of(cgroup)))
    }

    /// What was noted when the cgroup was still there.
    pub(crate) fn noted(note: &Path) -> io::Result<Option<Self>> {
        let Some(file) = absent_is_none(File::open(note))? else {
            return Ok(None);
        };
        let mut detail = String::new();
        file.take(MAX_NOTE_BYTES).read_to_string(&mut detail)?;
        Ok(Some(Self { detail }))
    }

    fn of_events(events: &str, limit: impl FnOnce() -> Option<u64>) -> Option<Self> {
        count(events, "oom_kill ").filter(|count| *count > 0)?;
        let by_limit = count(events, "oom ").is_some_and(|count| count > 0);
        let detail = match limit().filter(|bytes| by_limit && *bytes != NO_LIMIT) {
            Some(bytes) => format!(
                "it needed more than the {} MiB of its cgroup (memory.max)",
                bytes >> 20
            ),
            None if by_limit => String::from("it needed more than its cgroup's memory.max"),
            None => String::from("the node had none left"),
        };
        Some(Self { detail })
    }

    /// Notes it for those who look later.
    fn note(&self, path: &Path) -> io::Result<()> {
        let draft = path.with_extension("draft");
        fs::write(&draft, &self.detail)?;
        fs::rename(draft, path)
    }
}

/// A line of the kernel's counts.
fn count(events: &str, name: &str) -> Option<u64> {
    let line = events.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.trim().parse().ok())
}

/// In bytes; nothing when it cannot be read.
fn limit_of(cgroup: &Path) -> Option<u64> {
    let text = fs::read_to_string(cgroup.join("memory.max")).ok()?;
    match text.trim() {
        "max" => Some(NO_LIMIT),
        bytes => bytes.parse().ok(),
    }
}

/// What the counts say of a VMM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sight {
    /// Its memory has not run out.
    Well,
    /// Its memory has run out, and nobody was killed yet.
    Looming,
    /// It was killed, and that is noted.
    Killed,
}

/// Watches one VMM.
#[derive(Debug)]
pub(crate) struct OomWatch {
    cgroup: PathBuf,
    events: AsyncFd<File>,
    /// What the cgroup allowed when that was last read, in bytes: it may be gone the moment after it
    /// reported a kill.
    limit: AtomicU64,
    note: PathBuf,
}

impl OomWatch {
    /// Of a process that lives; nothing when it lives in no guest's cgroup.
    ///
    /// # Errors
    /// When the cgroup cannot be watched.
    #[expect(
        deprecated,
        reason = "what replaces it is unsafe for the sake of descriptors that are borrowed; this one is owned"
    )]
    pub(crate) fn of(pid: u32, note: PathBuf) -> io::Result<Option<Self>> {
        let Some(cgroup) = cgroup_of(&process::cgroups(pid)?) else {
            return Ok(None);
        };
        let Some(events) = absent_is_none(File::open(cgroup.join(EVENTS)))? else {
            return Ok(None);
        };
        let events = AsyncFd::with_interest(events, Interest::PRIORITY)?;
        Ok(Some(Self {
            limit: AtomicU64::new(limit_of(&cgroup).unwrap_or(NO_LIMIT)),
            cgroup,
            events,
            note,
        }))
    }

    /// Ends once a kill was noted, or the cgroup is gone.
    ///
    /// # Errors
    /// When the cgroup cannot be read or nothing be noted.
    pub(crate) async fn run(&self) -> io::Result<()> {
        loop {
            for _ in 0..POLLS {
                // The kernel signals the next change only after a read.
                match self.see()? {
                    Sight::Killed => return Ok(()),
                    Sight::Looming => tokio::time::sleep(PAUSE).await,
                    Sight::Well => break,
                }
            }
            self.events.ready(Interest::PRIORITY).await?.clear_ready();
        }
    }

    /// Polls once; true when the VMM was killed and that is noted.
    pub(crate) fn poll(&self) -> io::Result<bool> {
        Ok(self.see()? == Sight::Killed)
    }

    fn see(&self) -> io::Result<Sight> {
        let mut file = self.events.get_ref();
        let mut text = String::new();
        file.rewind()?;
        file.read_to_string(&mut text)?;
        if let Some(limit) = limit_of(&self.cgroup) {
            self.limit.store(limit, Ordering::Relaxed);
        }
        let known = || Some(self.limit.load(Ordering::Relaxed));
        let Some(kill) = OomKill::of_events(&text, known) else {
            let looms = count(&text, "oom ").is_some_and(|count| count > 0);
            return Ok(if looms { Sight::Looming } else { Sight::Well });
        };
        kill.note(&self.note)?;
        Ok(Sight::Killed)
    }
}

/// The cgroup v2 of a process, by its `/proc/PID/cgroup`, when it is a guest's.
fn cgroup_of(cgroups: &str) -> Option<PathBuf> {
    let path = cgroups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    path.contains(GUESTS).then(|| Path::new(ROOT).join(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: &str = "low 0\nhigh 0\nmax 3\noom 0\noom_kill 0\noom_group_kill 0\n";

    #[test]
    fn a_kill_by_the_limit_is_distinguished_from_one_by_the_node() {
        let kill =
            |events: &str| OomKill::of_events(events, || Some(80 << 20)).map(|kill| kill.detail);
        assert_eq!(kill(NOTHING), None);
        assert_eq!(kill("oom_kill many\n"), None);
        assert_eq!(
            kill("oom 1\noom_kill 1\n").as_deref(),
            Some("it needed more than the 80 MiB of its cgroup (memory.max)")
        );
        assert_eq!(
            kill("oom 0\noom_kill 1\n").as_deref(),
            Some("the node had none left")
        );
    }

    #[test]
    fn what_was_noted_is_read_again_and_nothing_is_no_kill() {
        let dir = tempfile::tempdir().unwrap();
        let note = dir.path().join("oom-kill");
        assert_eq!(OomKill::noted(&note).unwrap(), None);
        assert_eq!(OomKill::of_cgroup(dir.path()).unwrap(), None);
        fs::write(dir.path().join(EVENTS), "oom 2\noom_kill 1\n").unwrap();
        fs::write(dir.path().join("memory.max"), "max\n").unwrap();
        let kill = OomKill::of_cgroup(dir.path()).unwrap().unwrap();
        kill.note(&note).unwrap();
        assert_eq!(OomKill::noted(&note).unwrap(), Some(kill));
    }

    #[test]
    fn only_cgroups_of_guests_are_watched() {
        let path = "/sys/fs/cgroup/kvmlet-guests/kvmlet-vmm-u-1";
        let lines = "4:memory:/x\n0::/kvmlet-guests/kvmlet-vmm-u-1\n";
        assert_eq!(cgroup_of(lines), Some(PathBuf::from(path)));
        assert_eq!(cgroup_of("0::/system.slice/kvmlet.service\n"), None);
        assert_eq!(cgroup_of("4:memory:/kvmlet-guests\n"), None);
    }
}
