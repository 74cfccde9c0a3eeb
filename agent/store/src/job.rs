//! A transaction that somebody asked for and does not wait for on a thread of his own.

use crate::error::StoreError;
use crate::transaction::Transaction;

/// A transaction in the queue.
pub(crate) trait Job: Send {
    /// Does its work. Called once at most.
    fn run(&mut self, transaction: &mut Transaction<'_>) -> JobRan;

    /// Tells whoever asked for it: what the work came to, or why that is not stored.
    fn finish(self: Box<Self>, stored: Result<(), StoreError>);
}

/// What the work of a job came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobRan {
    Done,
    Failed,
}

/// Work, and the callback for its result.
pub(crate) struct Asked<T, E, F, D> {
    work: Option<F>,
    result: Option<Result<T, E>>,
    done: D,
}

impl<T, E, F, D> Asked<T, E, F, D>
where
    E: From<StoreError>,
    F: FnOnce(&mut Transaction<'_>) -> Result<T, E>,
    D: FnOnce(Result<T, E>),
{
    pub(crate) const fn new(work: F, done: D) -> Self {
        Self {
            work: Some(work),
            result: None,
            done,
        }
    }
}

impl<T, E, F, D> Job for Asked<T, E, F, D>
where
    T: Send,
    E: From<StoreError> + Send,
    F: FnOnce(&mut Transaction<'_>) -> Result<T, E> + Send,
    D: FnOnce(Result<T, E>) + Send,
{
    fn run(&mut self, transaction: &mut Transaction<'_>) -> JobRan {
        let result = self.work.take().map(|work| work(transaction));
        let is_done = matches!(result, Some(Ok(_)));
        self.result = result;
        if is_done {
            JobRan::Done
        } else {
            JobRan::Failed
        }
    }

    fn finish(self: Box<Self>, stored: Result<(), StoreError>) {
        let this = *self;
        let result = match (this.result, stored) {
            // Work that failed by itself reports its own error.
            (Some(Err(error)), _) => Err(error),
            (Some(Ok(value)), Ok(())) => Ok(value),
            (_, Err(error)) => Err(error.into()),
            (None, Ok(())) => return,
        };
        (this.done)(result);
    }
}
