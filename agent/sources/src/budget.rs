//! What one caller may have of the agent over all its connections: calls at a time, and bytes that wait for it.
//!
//! The attack: a caller opens many connections with many streams each, asks for much and reads nothing, or sends all but
//! the last byte of many large requests. Each stream alone is bounded, their product is not. So every call counts for its
//! caller from its begin to the end of its answer, every frame of an answer from when it is made until the transport has
//! written it, and every large request from its first byte to the end of its call. A caller that has too much of them waits
//! for itself.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::error::ApiError;

/// How long the first request of a console or a forward may take to come: until then the call holds what a call holds,
/// and nothing shows that anybody means it.
pub(crate) const OPENING: Duration = if cfg!(test) {
    Duration::from_millis(200)
} else {
    Duration::from_secs(10)
};

/// The largest message that is read; a manifest of the largest size fits.
pub(crate) const MAX_REQUEST_BYTES: usize = 4 << 20;

/// What callers may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// Calls at a time of one caller, streams among them.
    pub calls_each: usize,
    /// Calls at a time of all callers together, except root and the agent's own user.
    pub calls: usize,
    /// Bytes that wait for one caller, with its large requests. A call may always have one frame on its way, and a request
    /// of `SMALL_BYTES`, so that one stream that is not read stops no other.
    pub bytes_each: usize,
    /// The same of all callers together.
    pub bytes: usize,
}

/// Requests up to this size, and frames of answers, which the encoder makes no larger unless a single message is.
pub(crate) const SMALL_BYTES: usize = 64 << 10;

/// What a call costs besides: a small request, a frame, its task, messages on the way to the encoder, HTTP/2's state.
const CALL_BYTES: u64 = 192 << 10;

impl CallLimits {
    /// The most memory that calls can pin.
    #[must_use]
    pub const fn worst_case_bytes(&self) -> u64 {
        self.bytes as u64 + self.calls as u64 * CALL_BYTES
    }
}

impl Default for CallLimits {
    fn default() -> Self {
        Self {
            calls_each: 256,
            calls: 2048,
            bytes_each: 16 << 20,
            bytes: 128 << 20,
        }
    }
}

/// What callers have. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Budgets(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limits: CallLimits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    callers: HashMap<Arc<str>, Held>,
    calls: usize,
    bytes: usize,
}

/// Calls and bytes of one caller.
#[derive(Debug, Default)]
struct Held {
    calls: usize,
    bytes: usize,
    /// Tasks that wait until it has less.
    waiting: Vec<Waker>,
}

/// A call. Its place is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Call {
    budgets: Budgets,
    whose: Arc<str>,
    is_exempt: bool,
    /// Frames of its answer that wait.
    frames: AtomicUsize,
}

/// Bytes that wait. They count no longer when this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    call: Arc<Call>,
    bytes: usize,
    frames: usize,
}

impl Budgets {
    pub(crate) fn new(limits: CallLimits) -> Self {
        Self(Arc::new(Inner {
            limits,
            state: Mutex::default(),
        }))
    }

    /// A place for one more call. Root and the agent's own user (`is_exempt`) need no room among all callers.
    ///
    /// # Errors
    /// [`ApiError::Unavailable`] when there is none.
    pub(crate) fn begin(&self, whose: &str, is_exempt: bool) -> Result<Arc<Call>, ApiError> {
        let limits = self.0.limits;
        let mut state = self.state();
        let own = state.callers.get(whose).map_or(0, |held| held.calls);
        if own >= limits.calls_each {
            return Err(ApiError::Unavailable(format!(
                "{whose} has {own} calls open over all its connections, and may have {}: end some",
                limits.calls_each
            )));
        }
        if !is_exempt && state.calls >= limits.calls {
            return Err(ApiError::Unavailable(format!(
                "{} calls are open, and the agent serves {} at a time: try again when some have ended",
                state.calls, limits.calls
            )));
        }
        let whose: Arc<str> = whose.into();
        state.callers.entry(Arc::clone(&whose)).or_default().calls += 1;
        if !is_exempt {
            state.calls += 1;
        }
        Ok(Arc::new(Call {
            budgets: self.clone(),
            whose,
            is_exempt,
            frames: AtomicUsize::new(0),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No holder of the lock can leave the counts half changed.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes off what is given back, and wakes who may go on.
    fn give_back(&self, whose: &Arc<str>, (calls, shared_calls, bytes): (usize, usize, usize)) {
        let mut woken = Vec::new();
        {
            let mut state = self.state();
            let was_full = state.bytes >= self.0.limits.bytes;
            state.calls = state.calls.saturating_sub(shared_calls);
            state.bytes = state.bytes.saturating_sub(bytes);
            if let Some(held) = state.callers.get_mut(whose) {
                held.calls = held.calls.saturating_sub(calls);
                held.bytes = held.bytes.saturating_sub(bytes);
                woken.append(&mut held.waiting);
                if held.calls == 0 && held.bytes == 0 {
                    state.callers.remove(whose);
                }
            }
            if was_full && state.bytes < self.0.limits.bytes {
                for held in state.callers.values_mut() {
                    woken.append(&mut held.waiting);
                }
            }
        }
        woken.into_iter().for_each(Waker::wake);
    }
}

impl Call {
    /// The call that a request belongs to, which the layer gave it.
    ///
    /// # Errors
    /// [`ApiError::Internal`] for a call that came past the layer.
    pub(crate) fn of<T>(request: &tonic::Request<T>) -> Result<Arc<Self>, ApiError> {
        let call = request.extensions().get::<Arc<Self>>().cloned();
        call.ok_or_else(|| ApiError::Internal(String::from("the call was not counted")))
    }

    /// Whether one more frame of the answer may be made: the first always, so that what is kept for an answer can leave.
    pub(crate) fn poll_frame(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.frames.load(Ordering::Relaxed) == 0 {
            return Poll::Ready(());
        }
        self.poll_budget(context)
    }

    /// Whether more bytes may wait; if not, the task is woken when it is worth asking again.
    pub(crate) fn poll_budget(&self, context: &mut Context<'_>) -> Poll<()> {
        let limits = self.budgets.0.limits;
        let mut state = self.budgets.state();
        let all_full = state.bytes >= limits.bytes;
        let held = state.callers.entry(Arc::clone(&self.whose)).or_default();
        if held.bytes < limits.bytes_each && !all_full {
            return Poll::Ready(());
        }
        if !held
            .waiting
            .iter()
            .any(|known| known.will_wake(context.waker()))
        {
            held.waiting.push(context.waker().clone());
        }
        Poll::Pending
    }

    /// Waits for [`Self::poll_budget`].
    pub(crate) async fn available(&self) {
        poll_fn(|context| self.poll_budget(context)).await;
    }

    /// Whether a large answer may be made now.
    ///
    /// # Errors
    /// [`ApiError::Unavailable`] when the caller has not read what it asked for before.
    pub(crate) fn check_budget(&self) -> Result<(), ApiError> {
        let limits = self.budgets.0.limits;
        let state = self.budgets.state();
        let own = state.callers.get(&self.whose).map_or(0, |held| held.bytes);
        if own >= limits.bytes_each || state.bytes >= limits.bytes {
            return Err(ApiError::Unavailable(format!(
                "{} has {} KiB of answers and requests under way, and all callers {} KiB: read what was asked for \
                 before, and try again",
                self.whose,
                own >> 10,
                state.bytes >> 10
            )));
        }
        Ok(())
    }

    /// Counts a frame of the answer. That there is room is for the caller to have asked.
    pub(crate) fn charge_frame(self: &Arc<Self>, bytes: usize) -> Charge {
        self.frames.fetch_add(1, Ordering::Relaxed);
        let mut charge = self.charge(bytes);
        charge.frames = 1;
        charge
    }

    /// Counts bytes that wait. That there is room is for the caller to have asked.
    pub(crate) fn charge(self: &Arc<Self>, bytes: usize) -> Charge {
        let mut state = self.budgets.state();
        state.bytes = state.bytes.saturating_add(bytes);
        let held = state.callers.entry(Arc::clone(&self.whose)).or_default();
        held.bytes = held.bytes.saturating_add(bytes);
        Charge {
            call: Arc::clone(self),
            bytes,
            frames: 0,
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let shared = usize::from(!self.is_exempt);
        self.budgets.give_back(&self.whose, (1, shared, 0));
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.call.frames.fetch_sub(self.frames, Ordering::Relaxed);
        let call = &self.call;
        call.budgets.give_back(&call.whose, (0, 0, self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: CallLimits = CallLimits {
        calls_each: 2,
        calls: 3,
        bytes_each: 100,
        bytes: 150,
    };

    fn is_available(call: &Call) -> bool {
        call.poll_frame(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    #[test]
    fn nobody_takes_the_calls_of_all_and_what_has_ended_is_free_again() {
        let budgets = Budgets::new(LIMITS);
        let begin = |whose: &str| {
            budgets
                .begin(whose, false)
                .map_err(|error| error.to_string())
        };
        let held = [begin("a").expect("free"), begin("a").expect("free")];
        let refused = begin("a").expect_err("too many");
        assert!(
            refused.starts_with("a has 2 calls open over all"),
            "{refused}"
        );
        let other = begin("b").expect("free");
        let refused = begin("c").expect_err("too many");
        assert!(refused.starts_with("3 calls are open"), "{refused}");
        let root = budgets.begin("uid 0", true).expect("is not in their way");
        drop((held, other, root));
        let state = budgets.state();
        assert!(state.callers.is_empty());
        assert_eq!((state.calls, state.bytes), (0, 0));
    }

    #[test]
    fn a_caller_that_does_not_read_waits_for_itself_and_each_stream_gets_its_first_frame() {
        let budgets = Budgets::new(LIMITS);
        let begin = |whose: &str| budgets.begin(whose, false).expect("free");
        let (slow, fast, other) = (begin("a"), begin("a"), begin("b"));
        let unread = [slow.charge_frame(60), slow.charge_frame(60)];
        assert!(!is_available(&slow));
        assert!(slow.check_budget().is_err());
        assert!(is_available(&fast), "its own first frame");
        let one = fast.charge_frame(1);
        assert!(!is_available(&fast));
        let theirs = other.charge_frame(20);
        assert!(is_available(&other), "another's budget");
        let more = other.charge_frame(20);
        assert!(!is_available(&other), "all together have too much");
        drop(unread);
        assert!(is_available(&slow) && is_available(&fast) && is_available(&other));
        drop((one, theirs, more));
        assert_eq!(budgets.state().bytes, 0);
    }

    #[tokio::test]
    async fn who_waits_for_room_goes_on_when_there_is_some() {
        let budgets = Budgets::new(LIMITS);
        let call = budgets.begin("a", false).expect("free");
        let unread = call.charge(100);
        let waiter = tokio::spawn({
            let call = Arc::clone(&call);
            async move { call.available().await }
        });
        // It has asked once it has left a waker.
        while budgets.state().callers["a"].waiting.is_empty() {
            tokio::task::yield_now().await;
        }
        drop(unread);
        waiter.await.expect("goes on");
    }
}
