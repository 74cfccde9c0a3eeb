//! The set of the agent's actors.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, OnceLock};

use agent_host::Wake;
use agent_sources::ObjectRef;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::locked::locked;

/// Starts the actor of a VMI, by its name and uid.
type Start = Box<dyn Fn(&ObjectRef, &str) + Send + Sync>;

/// Those that follow one VMI each, and whether they are to end.
#[derive(Default)]
pub(crate) struct Actors {
    /// What makes an actor: who accepts a VMI knows no host.
    start: OnceLock<Start>,
    wakes: Mutex<HashMap<String, Wake>>,
    tasks: Mutex<JoinSet<()>>,
    stopping: watch::Sender<bool>,
}

impl Actors {
    /// Has actors of VMIs that are accepted from now on be started by `start`, which is given once.
    pub(crate) fn start_by(&self, start: impl Fn(&ObjectRef, &str) + Send + Sync + 'static) {
        self.start.get_or_init(|| Box::new(start));
    }

    /// Starts the actor of a VMI that was just accepted.
    pub(crate) fn begin(&self, target: &ObjectRef, uid: &str) {
        if let Some(start) = self.start.get() {
            start(target, uid);
        }
    }

    /// How many VMIs have an actor.
    pub(crate) fn count(&self) -> usize {
        locked(&self.wakes).len()
    }

    /// Has the actor of a VMI look again.
    pub(crate) fn wake(&self, uid: &str) {
        if let Some(wake) = locked(&self.wakes).get(uid) {
            wake.notify_one();
        }
    }

    /// Has all actors look again.
    pub(crate) fn wake_all(&self) {
        for wake in locked(&self.wakes).values() {
            wake.notify_one();
        }
    }

    /// Follows whether the agent is about to end.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    /// Has everything end. Guests are left alone.
    pub(crate) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Waits until every actor has finished what it was doing.
    pub(crate) async fn join(&self) {
        let mut tasks = std::mem::take(&mut *locked(&self.tasks));
        while tasks.join_next().await.is_some() {}
    }

    /// Takes the actor of a VMI in. Returns what wakes it.
    pub(crate) fn enter(&self, uid: &str) -> Wake {
        let wake = Wake::default();
        locked(&self.wakes).insert(uid.to_owned(), Arc::clone(&wake));
        wake
    }

    /// Removes the actor of a VMI.
    pub(crate) fn remove(&self, uid: &str) {
        locked(&self.wakes).remove(uid);
    }

    /// Runs an actor.
    pub(crate) fn run(&self, actor: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = locked(&self.tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(actor);
    }
}
