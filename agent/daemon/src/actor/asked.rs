//! Whom the tasks of an actor may ask something, and when they have to stop.

use std::future::Future;
use std::sync::Arc;

use agent_plan::{Record, Timestamp};
use tokio::sync::watch;

/// A guest that may be asked.
#[derive(Clone)]
pub(super) struct Asked {
    pub(super) record: Arc<Record>,
    pub(super) running_since: Timestamp,
}

impl Asked {
    /// Has `asked` be the guest of `record`, which runs since then, or nobody.
    pub(super) fn follow(
        asked: &watch::Sender<Option<Self>>,
        since: Option<Timestamp>,
        record: &Record,
    ) {
        asked.send_if_modified(|asked| {
            let before = asked.as_ref();
            let known = |asked: &Self| (asked.running_since, asked.record.launches.incarnation());
            if before.map(known) == since.map(|since| (since, record.launches.incarnation())) {
                return false;
            }
            *asked = since.map(|running_since| Self {
                record: Arc::new(record.clone()),
                running_since,
            });
            true
        });
    }
}

/// Asks the present guest until it may not be asked any more: a question that is open then is dropped. Or waits while
/// there is none. False when the actor is gone.
pub(super) async fn each<F: Future<Output = ()>>(
    asked: &mut watch::Receiver<Option<Asked>>,
    ask_on_and_on: impl FnOnce(Asked) -> F,
) -> bool {
    let present = asked.borrow_and_update().clone();
    let changed = match present {
        None => asked.changed().await,
        Some(present) => {
            tokio::select! {
                changed = asked.changed() => changed,
                () = ask_on_and_on(present) => Ok(()),
            }
        }
    };
    changed.is_ok()
}
