//! Memory of helpers: children that read what strangers wrote, and programs of the operator.
//!
//! A helper may come to have all the address space that it is allowed. Whoever starts one takes that much from a budget of the
//! process first and gives it back once the helper was waited for. `MemoryMax=` of the packaged unit contains the
//! budget of those that live in it, so no number of images makes the kernel kill the agent. Helpers of pulls and disks live in
//! scopes of their own.
//!
//! Each kind of helper has its share, by how long it may take. A registry that answers slowly holds up pulls alone, and
//! kernels, which most starts of guests wait for, never wait for a disk that is being made.

use std::io;
use std::sync::Arc;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::sandbox::Sandbox;
use crate::scope::{Kind, Scope};
use crate::work::Work;

/// What permits count.
const UNIT_BYTES: u64 = 64 << 20;

/// A part of the budget.
#[derive(Debug, Clone, Copy)]
enum Share {
    /// Seconds: kernels, also those in layers, and indexes of archives.
    Starts,
    /// As long as the operator's programs like, up to their deadline, before a guest starts.
    Hooks,
    /// The same before a guest is to stop, which has a deadline of its own.
    StopHooks,
    /// Minutes, rarely an hour: files in layers, conversions.
    Images,
    /// As long as a registry likes, up to hours. The kubelet pulls one image at a time by default.
    Pulls,
}

impl Share {
    const fn bytes(self) -> u64 {
        match self {
            Self::Starts => 512 << 20,
            Self::Hooks => 768 << 20,
            Self::StopHooks => 256 << 20,
            Self::Images => 768 << 20,
            Self::Pulls => 384 << 20,
        }
    }

    fn units(self) -> &'static Semaphore {
        static STARTS: Semaphore = Semaphore::const_new(units(Share::Starts.bytes()) as usize);
        static HOOKS: Semaphore = Semaphore::const_new(units(Share::Hooks.bytes()) as usize);
        static STOP_HOOKS: Semaphore =
            Semaphore::const_new(units(Share::StopHooks.bytes()) as usize);
        static IMAGES: Semaphore = Semaphore::const_new(units(Share::Images.bytes()) as usize);
        static PULLS: Semaphore = Semaphore::const_new(units(Share::Pulls.bytes()) as usize);
        match self {
            Self::Starts => &STARTS,
            Self::Hooks => &HOOKS,
            Self::StopHooks => &STOP_HOOKS,
            Self::Images => &IMAGES,
            Self::Pulls => &PULLS,
        }
    }
}

/// What all helpers together may have that live in the agent's service.
pub const HELPER_MEMORY_BYTES: u64 =
    Share::Starts.bytes() + Share::Hooks.bytes() + Share::StopHooks.bytes();

/// What the scope of a helper may have beside its address space: pages of the files that it reads and writes, which the kernel
/// takes back.
const CACHE_BYTES: u64 = 256 << 20;

/// 128 MiB of zstd window, 96 MiB of xz, 16 MiB of LZ4 buffers: one of them, and the program.
pub(crate) const UNPACK_KERNEL: Need = Need::of(512 << 20, Share::Starts, "unpacks a kernel");
pub(crate) const READ_ARCHIVE: Need = Need::of(256 << 20, Share::Starts, "reads an archive");
/// What a hook may write to in memory. Interpreters reserve more address space than they use.
pub(crate) const HOOK_DATA_BYTES: u64 = 256 << 20;
pub(crate) const RUN_HOOK: Need = Need::of(HOOK_DATA_BYTES, Share::Hooks, "is a hook");
pub(crate) const RUN_STOP_HOOK: Need = Need::of(HOOK_DATA_BYTES, Share::StopHooks, "is a hook");
/// 32 MiB of zstd window, what is known of the files of up to 128 layers, and the program.
pub(crate) const READ_LAYERS: Need = Need::of(384 << 20, Share::Images, "reads layers");
/// The same for a kernel or initrd.
pub(crate) const READ_BOOT_LAYERS: Need =
    Need::of(READ_LAYERS.bytes, Share::Starts, "reads layers");
/// 8 MiB of zstd window, 64 MiB for the map of clusters, an L2 table and a cluster of 2 MiB for each of
/// 64 images, and the program.
pub(crate) const CONVERT_IMAGE: Need = Need::of(768 << 20, Share::Images, "converts a disk");
/// So many pulls go on at a time.
pub(crate) const PULLS_AT_ONCE: usize = (Share::Pulls.bytes() / PULL_IMAGE.bytes) as usize;

/// Documents of 4 MiB, buffers of a few connections, and the program, which is mapped by 33 MiB.
pub(crate) const PULL_IMAGE: Need = Need::of(128 << 20, Share::Pulls, "pulls an image");

#[expect(
    clippy::cast_possible_truncation,
    reason = "the number is at most 16384"
)]
const fn units(bytes: u64) -> u32 {
    assert!(bytes.is_multiple_of(UNIT_BYTES) && bytes <= 1 << 40);
    (bytes / UNIT_BYTES) as u32
}

/// What a helper takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Need {
    /// The limit of its address space, or of its data.
    pub(crate) bytes: u64,
    share: Share,
    /// What it does, after "a helper that".
    what: &'static str,
}

impl Need {
    const fn of(bytes: u64, share: Share, what: &'static str) -> Self {
        assert!(bytes <= share.bytes(), "no such helper could ever start");
        Self { bytes, share, what }
    }

    /// Waits until the share has as much left, in the order in which helpers were asked for.
    pub(crate) async fn granted(self, work: Option<&Work>) -> io::Result<Memory> {
        let (units, all) = (units(self.bytes), self.share.units());
        if let Ok(permit) = all.try_acquire_many(units) {
            return Ok(Memory(permit));
        }
        if let Some(work) = work {
            let what = format!(
                "A helper that {} waits for {} of the {} MiB that helpers of its kind may have together",
                self.what,
                self.bytes >> 20,
                self.share.bytes() >> 20
            );
            work.set_progress("", &what, (0, 0));
        }
        let permit = all.acquire_many(units).await;
        if let Some(work) = work {
            work.clear_progress();
        }
        permit.map(Memory).map_err(io::Error::other)
    }
}

/// Memory that a helper may have. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Memory(SemaphorePermit<'static>);

impl Memory {
    /// Moves a helper that has this memory out of the agent's service.
    pub(crate) async fn scope(&self, sandbox: &Arc<Sandbox>, pid: u32) -> io::Result<Scope> {
        let bytes = self.0.num_permits() as u64 * UNIT_BYTES;
        let kind = Kind {
            word: "pull",
            memory_bytes: bytes + CACHE_BYTES,
            tasks: 8,
        };
        Scope::of(sandbox, kind, pid).await
    }
}

/// Why there is a child.
const UNTIL_DROPPED: &str = "only drop() takes it";

/// A child with its memory, which goes back once the child is gone. Dropping it ends the child, and all that it started
/// if it leads a group of processes.
#[derive(Debug)]
pub(crate) struct Helper {
    /// Until it is dropped.
    child: Option<(Child, Memory)>,
    /// Where it lives, if not in the agent's service.
    scope: Option<Scope>,
}

impl Helper {
    pub(crate) fn spawn(command: &mut Command, memory: Memory) -> io::Result<Self> {
        let child = command.kill_on_drop(true).spawn()?;
        Ok(Self {
            child: Some((child, memory)),
            scope: None,
        })
    }

    /// Moves it out of the agent's service, before it gets its orders.
    pub(crate) async fn leave_service(&mut self, sandbox: &Arc<Sandbox>) -> io::Result<()> {
        let (child, memory) = self.child.as_ref().expect(UNTIL_DROPPED);
        let pid = child.id().ok_or(io::ErrorKind::NotFound)?;
        self.scope = Some(memory.scope(sandbox, pid).await?);
        Ok(())
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        let (child, _) = self.child.as_mut().expect(UNTIL_DROPPED);
        child
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let Some((mut child, memory)) = self.child.take() else {
            return;
        };
        let scope = self.scope.take();
        let has_ended = matches!(child.try_wait(), Ok(Some(_)));
        if has_ended && scope.is_none() {
            return;
        }
        // Without a runtime the process ends, and all its helpers with it.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        runtime.spawn(async move {
            if !has_ended {
                end(&mut child).await;
            }
            drop(memory);
            if let Some(scope) = scope {
                scope.remove().await;
            }
        });
    }
}

/// Kills a helper with all that it started. It was not waited for, so its number is still its own.
pub(crate) async fn end(child: &mut Child) {
    let group = child.id().and_then(|pid| i32::try_from(pid).ok());
    if let Some(group) = group
        && let Err(errno) = killpg(Pid::from_raw(group), Signal::SIGKILL)
    {
        // One that does not lead a group of its own, or not yet, has started nothing, and is killed below.
        tracing::debug!(%errno, "a helper has no group of processes");
    }
    if let Err(error) = child.kill().await {
        tracing::warn!(%error, "a helper cannot be ended");
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};

    use super::*;

    /// Tests that take a share piece by piece or as a whole would wait for each other.
    static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

    /// A helper that notes how many of it run at once, which it reads from a directory.
    fn counting_helper(dir: &Path) -> PathBuf {
        let helper = dir.join("helper");
        let dir = dir.display();
        // Each helper lives long enough for those that run at the same time to see each other.
        let script = format!(
            "#!/bin/sh\nmkdir -p {dir}/run\n: >{dir}/run/$$\nls {dir}/run | wc -l >>{dir}/counts\n\
             sleep 0.3\nls {dir}/run | wc -l >>{dir}/counts\nrm {dir}/run/$$\n"
        );
        fs::write(&helper, script).unwrap();
        fs::set_permissions(&helper, fs::Permissions::from_mode(0o755)).unwrap();
        helper
    }

    #[tokio::test]
    async fn hooks_of_many_guests_run_within_their_memory_and_beside_each_other() {
        let _turn = TURN.lock().await;
        let dir = tempfile::tempdir().unwrap();
        let helper = counting_helper(dir.path());
        let asked = (0..8).map(|_| {
            let helper = helper.clone();
            tokio::spawn(async move {
                let limit = std::time::Duration::from_secs(60);
                let point = crate::HookPoint::OnDefineDomain;
                crate::run_hook_program(&helper, Path::new("hook"), point, b"", limit).await
            })
        });
        for asked in asked.collect::<Vec<_>>() {
            asked.await.unwrap().unwrap();
        }
        let counts = fs::read_to_string(dir.path().join("counts")).unwrap();
        let counts = counts.lines().map(|line| line.trim().parse::<u64>());
        let counts: Vec<u64> = counts.map(Result::unwrap).collect();
        assert_eq!(counts.len(), 16);
        let most = *counts.iter().max().unwrap();
        assert!(
            most > 1 && most * RUN_HOOK.bytes <= RUN_HOOK.share.bytes(),
            "{counts:?}"
        );
    }

    #[tokio::test]
    async fn a_helper_that_nobody_wants_any_more_gives_its_memory_back_when_it_is_gone() {
        const NEED: Need = Need::of(Share::Pulls.bytes(), Share::Pulls, "sleeps");
        let _turn = TURN.lock().await;
        let memory = NEED.granted(None).await.unwrap();
        let (dir, mut command) = (tempfile::tempdir().unwrap(), Command::new("/bin/sh"));
        // A hook leads a group of processes.
        command.process_group(0).current_dir(dir.path());
        // Both processes live until they are killed.
        let script = "sleep 1000 & echo $! >new; mv new started; sleep 1000";
        let mut helper = Helper::spawn(command.args(["-c", script]), memory).unwrap();
        let pid = helper.child().id().unwrap();
        let started = loop {
            if let Ok(started) = fs::read_to_string(dir.path().join("started")) {
                break started;
            }
            tokio::task::yield_now().await;
        };
        drop(helper);
        assert_eq!(Share::Pulls.units().available_permits(), 0);
        let work = Work::default();
        let mut granted = std::pin::pin!(NEED.granted(Some(&work)));
        tokio::select! {
            biased;
            _ = &mut granted => panic!("the helper has not been waited for"),
            () = std::future::ready(()) => {}
        }
        let progress = work.seen().progress.unwrap();
        assert!(
            format!("{progress:?}").contains("helper that sleeps waits for 384 of the 384 MiB")
        );
        let memory = granted.await.unwrap();
        assert_eq!(work.seen().progress, None);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        // What it had started was killed, too, and is waited for by whoever inherited it.
        let stat = format!("/proc/{}/stat", started.trim());
        let is_alive = || fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while is_alive() {
            assert!(
                std::time::Instant::now() < until,
                "what a helper started goes on"
            );
            tokio::task::yield_now().await;
        }
        drop(memory);
    }

    #[tokio::test]
    async fn guests_that_stop_wait_for_no_hook_of_guests_that_start() {
        let _turn = TURN.lock().await;
        let all = Share::Hooks
            .units()
            .try_acquire_many(units(Share::Hooks.bytes()));
        let dir = tempfile::tempdir().unwrap();
        let (helper, limit) = (
            counting_helper(dir.path()),
            std::time::Duration::from_secs(60),
        );
        let stop = crate::HookPoint::Shutdown;
        crate::run_hook_program(&helper, Path::new("hook"), stop, b"", limit)
            .await
            .unwrap();
        drop(all.unwrap());
    }

    #[tokio::test]
    async fn pulls_disks_and_hooks_that_take_all_their_memory_leave_starts_theirs() {
        let _turn = TURN.lock().await;
        let mut held = Vec::new();
        for need in [PULL_IMAGE, READ_LAYERS, RUN_HOOK, RUN_STOP_HOOK] {
            for _ in 0..need.share.bytes() / need.bytes {
                held.push(need.granted(None).await.unwrap());
            }
            let all = need.share.units();
            all.try_acquire_many(units(need.bytes)).unwrap_err();
        }
        for need in [UNPACK_KERNEL, READ_ARCHIVE, READ_BOOT_LAYERS] {
            drop(need.granted(None).await.unwrap());
        }
    }
}
