//! The queue of transactions that nobody waits for on a thread of his own, and the thread that runs them.
//!
//! A thread that waits for its sync is put to sleep and woken again, and all others with it: under load that takes more
//! time than the transactions. Here they come one after another on one thread, which opens the tables once for all that are
//! there, commits once, and then gives each its result.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::file::LedgerFile;
use crate::group::Group;
use crate::job::Job;
use crate::limits::Limits;

/// The queue, and its thread.
#[derive(Debug)]
pub(crate) struct Queue {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Shared")
            .field("waiting", &self.locked().jobs.len())
            .finish()
    }
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Box<dyn Job>>,
    is_ending: bool,
}

impl Shared {
    /// No holder of the lock can leave the queue half changed.
    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is there; waits until something is. Nothing at the end.
    fn wait(&self) -> Option<VecDeque<Box<dyn Job>>> {
        let mut state = self.locked();
        loop {
            if !state.jobs.is_empty() {
                return Some(std::mem::take(&mut state.jobs));
            }
            if state.is_ending {
                return None;
            }
            let woken = self.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Queue {
    /// Begins a thread that runs what comes.
    pub(crate) fn begin(
        file: &Arc<LedgerFile>,
        group: &Arc<Group>,
        limits: Limits,
    ) -> std::io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let thread = std::thread::Builder::new().name(String::from("ledger"));
        let (file, group, queue) = (Arc::clone(file), Arc::clone(group), Arc::clone(&shared));
        let thread = thread.spawn(move || {
            while let Some(mut jobs) = queue.wait() {
                while !jobs.is_empty() {
                    // The database may trip over a damaged file: whoever waits is let go, and the others have their turn.
                    let ran = catch_unwind(AssertUnwindSafe(|| {
                        group.run_queued(&file, limits, &mut jobs, || {
                            std::mem::take(&mut queue.locked().jobs)
                        });
                    }));
                    drop(ran);
                }
            }
        })?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Puts a transaction at the end.
    pub(crate) fn add(&self, job: Box<dyn Job>) {
        let mut state = self.shared.locked();
        let was_empty = state.jobs.is_empty();
        state.jobs.push_back(job);
        drop(state);
        if was_empty {
            self.shared.changed.notify_one();
        }
    }
}

impl Drop for Queue {
    /// What is in the queue is still carried out.
    fn drop(&mut self) {
        self.shared.locked().is_ending = true;
        self.shared.changed.notify_one();
        let Some(thread) = self.thread.take() else {
            return;
        };
        // The work that it has just done may have been the last to hold the ledger.
        if thread.thread().id() != std::thread::current().id() {
            // Its panics were logged when they happened.
            drop(thread.join());
        }
    }
}
