//! Turns of VMMs that the agent ends: so many end at a time, and others wait.
//!
//! The agent takes a turn before it orders a VMM over the control socket to end, and before it kills one. The turn is over when the
//! kernel reports the end of the process, whatever became of the order. A guest that shuts itself down takes none: its VMM does
//! not ask the agent.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_plan::VmmIdentity;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::process;

/// How many VMMs of this host the agent lets end at once.
///
/// Each thread of a VMM has seccomp filters of its own, and the kernel frees every filter of a thread that ends in a worker of
/// its workqueue `events`. The worker may hold the lock of all BPF programs while it waits for another work of that queue
/// (`bpf_prog_pack_free`, `__purge_vmap_area_lazy`). On each CPU the queue runs 1024 works at once: when as many wait for the
/// lock, the one that they wait for never comes, and no process can get a seccomp filter until the node restarts. Linux 6.18
/// stood still when 1000 VMMs were killed at once. 32 VMMs of a few vCPUs have some 200 filters, and few hosts have so many CPUs
/// that more VMMs would end any sooner.
const ENDS_AT_ONCE: usize = 32;

/// How long a VMM that does not end keeps others waiting: its process may wait for a disk that does not answer.
const LONGEST_TURN: Duration = Duration::from_secs(10);

/// How long it may take until so many VMMs have had their turn, beyond the time that one needs to end.
#[must_use]
pub fn longest_wait_for_turns(vmms: usize) -> Duration {
    let before = vmms.saturating_sub(1) / ENDS_AT_ONCE;
    LONGEST_TURN * u32::try_from(before).unwrap_or(u32::MAX)
}

/// The turns of all VMMs of this host. Clones are the same turns.
#[derive(Debug, Clone)]
pub(crate) struct EndTurns(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    free: Arc<Semaphore>,
    longest: Duration,
    /// VMMs that have a turn, or were killed and have not ended since.
    ending: Mutex<HashMap<VmmIdentity, Ending>>,
}

#[derive(Debug, Default)]
struct Ending {
    /// It got the signal: another one changes nothing.
    is_killed: bool,
}

impl Default for EndTurns {
    fn default() -> Self {
        Self::of(ENDS_AT_ONCE, LONGEST_TURN)
    }
}

impl EndTurns {
    fn of(at_once: usize, longest: Duration) -> Self {
        Self(Arc::new(Shared {
            free: Arc::new(Semaphore::new(at_once)),
            longest,
            ending: Mutex::default(),
        }))
    }

    /// Waits until exactly this process may be ended, in the order in which turns were asked for; `None` when it has ended by
    /// then. One that has its turn, or was killed in it, does not wait again.
    pub(crate) async fn take(&self, identity: &VmmIdentity) -> io::Result<Option<EndTurn>> {
        let Some(process) = process::pidfd_of(identity)? else {
            return Ok(None);
        };
        let turn = EndTurn {
            turns: self.clone(),
            identity: identity.clone(),
            process: Arc::new(followed(process)?),
        };
        if self.ending().contains_key(identity) {
            return Ok(Some(turn));
        }
        let free = Arc::clone(&self.0.free);
        if free.available_permits() == 0 {
            tracing::debug!(pid = identity.pid, "this VMM ends when fewer others do");
        }
        let permit = tokio::select! {
            biased;
            permit = free.acquire_owned() => permit.map_err(io::Error::other)?,
            ended = ended(&turn.process) => return ended.map(|()| None),
        };
        self.ending().insert(identity.clone(), Ending::default());
        tokio::spawn(turn.clone().follow(permit));
        Ok(Some(turn))
    }

    /// Kills exactly this process when it is its turn. That it is gone already is success.
    pub(crate) async fn kill(&self, identity: &VmmIdentity) -> io::Result<()> {
        match self.take(identity).await? {
            Some(turn) => turn.kill(),
            None => Ok(()),
        }
    }

    fn ending(&self) -> MutexGuard<'_, HashMap<VmmIdentity, Ending>> {
        // Each change is whole whatever happened to another holder of the lock.
        self.0.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The turn of one VMM. It is over with the process: dropping this ends nothing, because what was asked of the VMM may come to
/// pass when nobody waits for it any more.
#[derive(Debug, Clone)]
pub(crate) struct EndTurn {
    turns: EndTurns,
    identity: VmmIdentity,
    process: Arc<AsyncFd<OwnedFd>>,
}

impl EndTurn {
    fn kill(&self) -> io::Result<()> {
        self.note_kill();
        process::kill(self.process.get_ref())
    }

    fn note_kill(&self) {
        if let Some(ending) = self.turns.ending().get_mut(&self.identity) {
            ending.is_killed = true;
        }
    }

    /// Gives the turn to another when the process has ended, or has not for too long.
    async fn follow(self, permit: OwnedSemaphorePermit) {
        let (pid, longest) = (self.identity.pid, self.turns.0.longest);
        match timeout(longest, ended(&self.process)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(pid, %error, "the end of this VMM cannot be followed"),
            Err(_) => tracing::warn!(
                pid,
                "this VMM has not ended within {longest:?}: others do not wait for it any longer"
            ),
        }
        drop(permit);
        if self.was_killed() {
            // An error was logged above.
            drop(ended(&self.process).await);
            self.turns.ending().remove(&self.identity);
        }
    }

    /// Whether it got the signal. One that did not has no turn from now on: whatever ends it takes another.
    fn was_killed(&self) -> bool {
        let mut ending = self.turns.ending();
        let is_killed = ending.get(&self.identity).is_some_and(|it| it.is_killed);
        if !is_killed {
            ending.remove(&self.identity);
        }
        is_killed
    }
}

#[expect(
    deprecated,
    reason = "what replaces it is unsafe for the sake of descriptors that are borrowed; this one is owned"
)]
fn followed(process: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(process, Interest::READABLE)
}

/// Waits for the end of a process.
async fn ended(process: &AsyncFd<OwnedFd>) -> io::Result<()> {
    loop {
        let mut ready = process.readable().await?;
        if !process::is_running(process.get_ref())? {
            return Ok(());
        }
        ready.clear_ready();
    }
}

#[cfg(test)]
mod tests;
