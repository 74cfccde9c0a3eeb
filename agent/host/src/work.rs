//! Work for one VMI that may take more than a moment: what it waits for, how far it is, and that it is over.
//!
//! A call into a file system whose server is gone (NFS, FUSE, iSCSI ...) returns when it pleases, or never. Such calls
//! are made on threads of their own, never on those of the runtime, which are few. Whoever gave up waiting leaves the
//! thread behind: it ends when the call returns, and the end of the process ends it in any case. For each mount there
//! are at most [`mounts::THREADS_OF_A_MOUNT`], so that a dead one takes nothing from others.

mod meter;
pub(crate) mod mounts;

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agent_plan::{ImageEvent, Progress};
use tokio::sync::oneshot;

use self::meter::Meter;
use self::mounts::Mounts;

/// Stack of such a thread: a call opens and reads files and no more.
const STACK_BYTES: usize = 512 << 10;

/// A file system that has not answered for so long may never do so.
const PATIENCE: Duration = Duration::from_secs(5);

/// The work of one operation. Clones are the same work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Whether it is over. Held while files of the VMI's own are made.
    over: Mutex<bool>,
}

#[derive(Debug, Default)]
struct State {
    /// Calls that have not returned, by number.
    calls: BTreeMap<u64, Call>,
    next: u64,
    meter: Option<Meter>,
    images: Vec<ImageEvent>,
}

#[derive(Debug)]
struct Call {
    what: String,
    since: Instant,
}

/// What is known of work under way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkSeen {
    /// A file system that has not answered for long, in words, and for how long.
    pub silent: Option<(String, Duration)>,
    /// Progress of the work, if it is known.
    pub progress: Option<Progress>,
    /// News of images since the last time that somebody looked.
    pub images: Vec<ImageEvent>,
}

impl Work {
    /// Makes a call that touches files of `path`'s file system, on a thread that may wait for it.
    ///
    /// Dropping the future leaves the thread alone; what the call gives then is dropped there, too.
    pub(crate) async fn files<T, E>(
        &self,
        path: &Path,
        call: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<io::Error> + Send + 'static,
    {
        let waits = self.note_call(&path.display().to_string());
        let turn = Mounts::get().turn(path).await?;
        let result = on_thread(move || {
            let result = call();
            drop(turn);
            result
        });
        let result = result.await?;
        drop(waits);
        result
    }

    /// Sets the progress of the work.
    pub(crate) fn set_progress(&self, reason: &str, what: &str, (done, total): (u64, u64)) {
        let mut state = self.state();
        let meter = state.meter.take();
        let meter = meter.filter(|meter| meter.is_of(reason, what));
        let mut meter = meter.unwrap_or_else(|| Meter::new(reason, what));
        meter.count(done, total, Instant::now());
        state.meter = Some(meter);
    }

    /// Reports news of an image, which become an event.
    pub(crate) fn report_image(&self, news: ImageEvent) {
        self.state().images.push(news);
    }

    /// Clears the progress that was reported last.
    pub(crate) fn clear_progress(&self) {
        self.state().meter = None;
    }

    /// Waits for something that touches files of an image, by whatever thread.
    pub(crate) async fn during<T>(&self, image: &str, future: impl Future<Output = T>) -> T {
        let _waits = self.note_call(image);
        future.await
    }

    /// Makes files of the VMI's own, unless the work is over: what was released stays so.
    pub(crate) fn make_own<T>(&self, make: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let is_over = lock(&self.0.over);
        if *is_over {
            return Err(io::Error::other("nobody waits for it any more"));
        }
        make()
    }

    /// A guard that ends the work when it is dropped.
    pub(crate) fn until_dropped(&self) -> EndOfWork {
        EndOfWork(self.clone())
    }

    /// What is known of it. News are given out once.
    pub(crate) fn seen(&self) -> WorkSeen {
        let mut state = self.state();
        let images = std::mem::take(&mut state.images);
        let oldest = state.calls.values().min_by_key(|call| call.since);
        let silent = oldest.and_then(|call| {
            let span = call.since.elapsed();
            (span >= PATIENCE).then(|| (call.what.clone(), span))
        });
        WorkSeen {
            silent,
            progress: state.meter.as_ref().map(Meter::progress),
            images,
        }
    }

    fn note_call(&self, place: &str) -> Waits {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        let what = format!("{place}: its file system does not answer");
        let since = Instant::now();
        state.calls.insert(number, Call { what, since });
        Waits {
            work: self.clone(),
            number,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }
}

/// A call that has not returned yet.
struct Waits {
    work: Work,
    number: u64,
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.work.state().calls.remove(&self.number);
    }
}

/// Ends work when it is dropped.
#[derive(Debug)]
pub(crate) struct EndOfWork(Work);

impl Drop for EndOfWork {
    fn drop(&mut self) {
        *lock(&self.0.0.over) = true;
    }
}

/// Runs a call on a thread of its own.
pub(crate) async fn on_thread<T: Send + 'static>(
    call: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (answer, answered) = oneshot::channel();
    let thread = std::thread::Builder::new()
        .name(String::from("files"))
        .stack_size(STACK_BYTES);
    thread.spawn(move || {
        // Nobody may wait for it any more: then it goes here.
        drop(answer.send(call()));
    })?;
    let panicked = |_| io::Error::other("the thread that touches files panicked");
    answered.await.map_err(panicked)
}

/// Why files are there: whoever takes them out ends the value.
const UNTAKEN: &str = "files are taken once";

/// Files of other file systems, which are closed on a thread of its own: closing waits for the file system, too.
#[derive(Debug)]
pub(crate) struct ClosedElsewhere<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> ClosedElsewhere<T> {
    pub(crate) const fn new(files: T) -> Self {
        Self(Some(files))
    }

    /// The files, whose owner sees to it that they are closed elsewhere.
    pub(crate) fn into_inner(mut self) -> T {
        self.0.take().expect(UNTAKEN)
    }

    pub(crate) const fn get(&self) -> &T {
        self.0.as_ref().expect(UNTAKEN)
    }
}

impl<T: Send + 'static> Drop for ClosedElsewhere<T> {
    fn drop(&mut self) {
        let Some(files) = self.0.take() else { return };
        let thread = std::thread::Builder::new()
            .name(String::from("close"))
            .stack_size(STACK_BYTES);
        if let Err(error) = thread.spawn(move || drop(files)) {
            tracing::warn!(%error, "files are closed without a thread");
        }
    }
}

/// No holder of these locks can leave what they guard half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn whoever_waits_for_a_call_can_give_up_and_what_it_brings_is_dropped() {
        let work = Work::default();
        struct Brought(mpsc::Sender<&'static str>);
        impl Drop for Brought {
            fn drop(&mut self) {
                self.0.send("dropped").unwrap();
            }
        }
        let (goes_on, may_go_on) = mpsc::channel::<()>();
        let (sender, receiver) = mpsc::channel::<&str>();
        let call = work.files(Path::new("/"), move || {
            may_go_on.recv().map_err(io::Error::other)?;
            Ok::<_, io::Error>(Brought(sender))
        });
        tokio::select! {
            biased;
            _ = call => panic!("nobody let it go on"),
            () = tokio::task::yield_now() => {}
        }
        assert_eq!(work.seen(), WorkSeen::default());
        goes_on.send(()).unwrap();
        assert_eq!(receiver.recv(), Ok("dropped"));
    }

    #[test]
    fn nothing_of_the_vmi_is_made_once_its_work_is_over() {
        let work = Work::default();
        assert_eq!(work.make_own(|| Ok(1)).unwrap(), 1);
        drop(work.until_dropped());
        work.make_own(|| Ok(1)).unwrap_err();
    }
}
