//! Disks that forget what was not flushed when their power goes, for nodes in boxes.
//!
//! Each disk is served to QEMU over NBD. A write is kept in the disk's volatile cache until a flush comes, and the
//! cache may write any sector of it back at any time, as those of real disks do. A *cut* is therefore a picture: all
//! that was flushed, and of each other sector that was written, a seeded choice whether it became durable. One run
//! serves many cuts, each in a state that a loss of power could have left.

mod content;
mod nbd;
mod shared;

use std::collections::BTreeMap;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

pub use content::{Content, SECTOR_BYTES, Volatile};
pub use shared::Cut;
use shared::{Disk, Shared, State};

/// How long the connections of a QEMU that ended may take to be noticed as closed.
const CLOSING: Duration = Duration::from_secs(20);

/// The disks of a node and what its guest was promised.
#[derive(Clone, Debug)]
pub struct Power {
    shared: Arc<Shared>,
    directory: Arc<tempfile::TempDir>,
}

impl Power {
    /// Disks with nothing on them, by name and size in bytes. They are served until the process ends.
    ///
    /// # Errors
    /// When this machine has no room for a socket.
    pub fn new(disks: &[(&str, u64)]) -> anyhow::Result<Self> {
        let power = Self {
            shared: Arc::default(),
            directory: Arc::new(tempfile::tempdir()?),
        };
        for (name, bytes) in disks {
            let disk = Volatile::new(*bytes);
            power.lock().disks.insert((*name).to_owned(), disk);
            let path = power.socket(name);
            let listener = UnixListener::bind(&path).with_context(|| path.display().to_string())?;
            let (shared, name, bytes) = (Arc::clone(&power.shared), (*name).to_owned(), *bytes);
            std::thread::spawn(move || nbd::serve(&listener, bytes, &Disk { shared, name }));
        }
        Ok(power)
    }

    /// The arguments of QEMU by which a node has these disks; each has its name as serial number.
    #[must_use]
    pub fn qemu_arguments(&self) -> Vec<String> {
        let names: Vec<String> = self.lock().disks.keys().cloned().collect();
        names
            .iter()
            .flat_map(|name| {
                let path = self.socket(name).display().to_string();
                [
                    "-drive".to_owned(),
                    format!(
                        "if=none,id={name},driver=raw,cache=writeback,file.driver=nbd,\
                         file.server.type=unix,file.server.path={path}"
                    ),
                    "-device".to_owned(),
                    format!("virtio-blk-pci,drive={name},serial={name}"),
                ]
            })
            .collect()
    }

    /// Puts `content` on a disk, durably.
    ///
    /// # Errors
    /// When there is no such disk.
    pub fn fill(&self, name: &str, content: Content) -> anyhow::Result<()> {
        let mut state = self.lock();
        let disk = state.disks.get_mut(name).context("no such disk")?;
        disk.fill(content);
        Ok(())
    }

    /// The power returns after `cut`, which left `left`. What happened after the cut has not happened: the highest
    /// number that the guest printed until now is given, and nothing of it was promised. QEMU has ended.
    ///
    /// # Errors
    /// When there is no such disk, or QEMU still has one.
    pub fn return_with(&self, cut: &Cut, left: BTreeMap<&str, Content>) -> anyhow::Result<u64> {
        self.lock().failure = None;
        // A request that QEMU sent before its end must not come after the new content.
        self.wait(CLOSING, |state| (state.clients == 0).then_some(()))
            .context("the old node still has its disks")?;
        for (name, content) in left {
            self.fill(name, content)?;
        }
        let mut state = self.lock();
        let last = state.kept.values().copied().max().unwrap_or_default();
        state.kept.clone_from(&cut.kept);
        Ok(last)
    }

    /// Notes that the guest printed `number` for a disk.
    pub fn keep(&self, name: &str, number: u64) {
        let mut state = self.lock();
        let kept = state.kept.entry(name.to_owned()).or_default();
        *kept = number.max(*kept);
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Notes that nothing more will come, so that nobody waits for it.
    pub fn fail(&self, why: String) {
        self.lock().failure.get_or_insert(why);
        self.shared.changed.notify_all();
    }

    /// Waits until each disk has a number above that of `after`, or any at all.
    ///
    /// # Errors
    /// When it has not within `limit`.
    pub fn wait_for_numbers(
        &self,
        after: &BTreeMap<String, u64>,
        limit: Duration,
    ) -> anyhow::Result<()> {
        self.wait(limit, |state| {
            let is_past = |name| state.kept.get(name).copied() > after.get(name).copied();
            state.disks.keys().all(is_past).then_some(())
        })
        .with_context(|| format!("the guest does not go on after {after:?}"))
    }

    /// Cuts the power in front of the request after `requests` others, and gives the picture. The node, which
    /// notices nothing, goes on.
    ///
    /// # Errors
    /// When so many requests do not come within `limit`.
    pub fn cut_after(&self, requests: u64, limit: Duration) -> anyhow::Result<Cut> {
        self.lock().left = Some(requests);
        self.wait(limit, |state| state.cut.take())
            .context("the node does not use its disks")
    }

    fn wait<T>(
        &self,
        limit: Duration,
        mut poll: impl FnMut(&mut State) -> Option<T>,
    ) -> anyhow::Result<T> {
        let until = Instant::now() + limit;
        let mut state = self.lock();
        loop {
            if let Some(found) = poll(&mut state) {
                return Ok(found);
            }
            if let Some(why) = &state.failure {
                bail!("{why}");
            }
            let left = until.saturating_duration_since(Instant::now());
            ensure!(!left.is_zero(), "not within {limit:?}");
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn socket(&self, name: &str) -> PathBuf {
        Path::new(self.directory.path()).join(name)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }
}
