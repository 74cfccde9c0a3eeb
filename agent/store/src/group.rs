//! Group commit: transactions that wait for each other share one sync.
//!
//! The database has one writer at a time and syncs at each commit. While one commit syncs, further transactions queue up
//! here; then each runs in turn within one transaction of the database, and the last in the queue commits for all. None
//! learns of success before that commit has returned, and readers see nothing of it before either. A transaction
//! alone in the queue commits at once, so nobody waits for company.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::StoreError;
use crate::file::{LedgerFile, Opened};
use crate::job::{Job, JobRan};
use crate::limits::Limits;
use crate::transaction::Transaction;
use crate::written::Write;

/// Transactions that share a sync, at most: it bounds how long the first of them waits.
const MOST: usize = 64;

const HALFWAY: &str = "another write of the same sync failed halfway";

/// The queue of transactions.
#[derive(Default)]
pub(crate) struct Group {
    open: Mutex<Option<Batch>>,
    /// Transactions that wait for their turn.
    waiting: AtomicUsize,
}

impl std::fmt::Debug for Group {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let waiting = self.waiting.load(Ordering::Relaxed);
        out.debug_struct("Group")
            .field("waiting", &waiting)
            .finish()
    }
}

/// Transactions that have run and are not yet committed.
struct Batch {
    write: Write,
    members: usize,
    outcome: Arc<Outcome>,
}

/// What became of a batch.
#[derive(Default)]
struct Outcome {
    known: Mutex<Option<Result<(), String>>>,
    changed: Condvar,
}

impl Outcome {
    fn set(&self, outcome: Result<(), String>) {
        *locked(&self.known) = Some(outcome);
        self.changed.notify_all();
    }

    fn wait(&self) -> Result<(), StoreError> {
        let mut known = locked(&self.known);
        loop {
            match &*known {
                Some(Ok(())) => return Ok(()),
                Some(Err(why)) => return Err(StoreError::NotShared { why: why.clone() }),
                None => {}
            }
            let woken = self.changed.wait(known);
            known = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// What one transaction came to within its batch.
pub(crate) enum Ran<T, E> {
    /// It is to be committed.
    Done(T),
    /// It failed before it changed anything.
    Refused(E),
    /// It failed after it had changed something: the batch cannot be committed.
    Spoiled(E),
}

impl Group {
    /// Runs `work` in a transaction of the file that is begun here or open already, and returns once it is committed.
    ///
    /// # Errors
    /// Those of `work`, of beginning and of committing.
    pub(crate) fn run<T, E: From<StoreError>>(
        &self,
        file: &LedgerFile,
        work: impl FnOnce(&Write) -> Ran<T, E>,
    ) -> Result<T, E> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut open = locked(&self.open);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        let batch = match open.take() {
            Some(batch) => batch,
            None => Batch {
                write: file.with(Opened::begin)?,
                members: 0,
                outcome: Arc::default(),
            },
        };
        let ran = catch_unwind(AssertUnwindSafe(|| work(&batch.write)));
        match ran {
            Ok(Ran::Done(value)) => {
                let outcome = self.join(file, open, batch)?;
                outcome.map_or(Ok(()), |outcome| outcome.wait())?;
                Ok(value)
            }
            Ok(Ran::Refused(error)) => {
                // Who came before may wait for this one to commit.
                if batch.members > 0 {
                    self.leave_unchanged(file, open, batch);
                }
                Err(error)
            }
            Ok(Ran::Spoiled(error)) => {
                abandon(batch);
                Err(error)
            }
            Err(panic) => {
                abandon(batch);
                drop(open);
                resume_unwind(panic)
            }
        }
    }

    /// Runs jobs in one transaction, those that come meanwhile among them, and gives each its result once that is
    /// committed. Jobs that have not run are left over.
    pub(crate) fn run_queued(
        &self,
        file: &LedgerFile,
        limits: Limits,
        jobs: &mut VecDeque<Box<dyn Job>>,
        mut more: impl FnMut() -> VecDeque<Box<dyn Job>>,
    ) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut open = locked(&self.open);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        let begun = open.take().map_or_else(
            || {
                Ok(Batch {
                    write: file.with(Opened::begin)?,
                    members: 0,
                    outcome: Arc::default(),
                })
            },
            Ok,
        );
        let mut batch = match begun {
            Ok(batch) => batch,
            Err(error) => return finish(jobs.drain(..).collect(), Err(error)),
        };
        let most = MOST.saturating_sub(batch.members).max(1);
        let mut members = Vec::new();
        let ran = match Transaction::open(&batch.write, limits) {
            Ok(transaction) => run_each(transaction, most, &mut members, || {
                if jobs.is_empty() {
                    jobs.append(&mut more());
                }
                jobs.pop_front()
            }),
            Err(error) => {
                members.extend(jobs.drain(..));
                Err(error)
            }
        };
        if let Err(error) = ran {
            abandon(batch);
            drop(open);
            return finish(members, Err(error));
        }
        if members.is_empty() && batch.members == 0 {
            return;
        }
        batch.members += members.len();
        let committed = if self.waiting.load(Ordering::SeqCst) == 0 || batch.members >= MOST {
            let committed = commit(file, batch);
            drop(open);
            committed
        } else {
            let outcome = Arc::clone(&batch.outcome);
            *open = Some(batch);
            drop(open);
            outcome.wait()
        };
        finish(members, committed);
    }

    /// Counts one more transaction; commits when nobody waits, else the answer is what to wait for.
    fn join(
        &self,
        file: &LedgerFile,
        mut open: MutexGuard<'_, Option<Batch>>,
        mut batch: Batch,
    ) -> Result<Option<Arc<Outcome>>, StoreError> {
        batch.members += 1;
        if self.waiting.load(Ordering::SeqCst) == 0 || batch.members >= MOST {
            return commit(file, batch).map(|()| None);
        }
        let outcome = Arc::clone(&batch.outcome);
        *open = Some(batch);
        Ok(Some(outcome))
    }

    /// Goes without having changed anything.
    fn leave_unchanged(
        &self,
        file: &LedgerFile,
        mut open: MutexGuard<'_, Option<Batch>>,
        batch: Batch,
    ) {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            // Its members get the error.
            drop(commit(file, batch));
        } else {
            *open = Some(batch);
        }
    }
}

/// Runs one job after another. Those that are to be committed come to `members`; one that fails before it changed
/// anything gets its error at once.
///
/// # Errors
/// When the batch cannot be committed; the job that caused it has its error.
fn run_each(
    mut transaction: Transaction<'_>,
    most: usize,
    members: &mut Vec<Box<dyn Job>>,
    mut next: impl FnMut() -> Option<Box<dyn Job>>,
) -> Result<(), StoreError> {
    while members.len() < most {
        let Some(mut job) = next() else { break };
        transaction.begin_member();
        let ran = catch_unwind(AssertUnwindSafe(|| job.run(&mut transaction)));
        match ran {
            Ok(JobRan::Done) => members.push(job),
            Ok(JobRan::Failed) => {
                job.finish(Ok(()));
                if transaction.is_changed() {
                    return Err(halfway());
                }
            }
            // Its caller gets an error; the panic itself is in the log.
            Err(_) => return Err(halfway()),
        }
    }
    transaction.close()
}

/// Gives jobs their results: the first the error itself, the others that they shared it.
fn finish(jobs: Vec<Box<dyn Job>>, mut stored: Result<(), StoreError>) {
    let why = stored.as_ref().err().map(ToString::to_string);
    for job in jobs {
        let own = std::mem::replace(
            &mut stored,
            match &why {
                None => Ok(()),
                Some(why) => Err(StoreError::NotShared { why: why.clone() }),
            },
        );
        job.finish(own);
    }
}

fn halfway() -> StoreError {
    StoreError::NotShared {
        why: HALFWAY.to_owned(),
    }
}

/// Commits, while nobody else can begin, and gives all members the result.
fn commit(file: &LedgerFile, batch: Batch) -> Result<(), StoreError> {
    let write = batch.write;
    let committed = file.with(|opened| opened.commit(write));
    batch.outcome.set(match &committed {
        Ok(()) => Ok(()),
        Err(error) => Err(error.to_string()),
    });
    committed
}

/// Gives up what a batch has changed.
fn abandon(batch: Batch) {
    let why = HALFWAY.to_owned();
    // Dropping a transaction gives it up.
    drop(batch.write);
    batch.outcome.set(Err(why));
}

/// No holder of these locks can leave what they guard half changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
