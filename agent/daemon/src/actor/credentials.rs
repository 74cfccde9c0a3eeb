//! Keys and passwords that the agent in a guest sets: a task has them set when the guest runs, when their Secrets
//! change, and now and then, as KubeVirt does.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_domain::{AccessCredential, Vmi};
use agent_host::{GuestCredentials, Host, Wake};
use agent_plan::{CredentialsSync, Observed, Record, Wanted, may_be_probed};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::asked::{self, Asked};
use crate::agent::Agent;
use crate::given;

/// Between two attempts until the guest has them: its agent may start late.
const SOON: Duration = Duration::from_secs(5);

/// Interval between two reads of the Secrets.
const POLL_INTERVAL: Duration = Duration::from_secs(15);

/// After which a guest that has them is given them again.
const AGAIN: Duration = Duration::from_secs(300);

/// The task of one VMI, if it has something to set. Dropping it ends it.
pub(super) struct CredentialsWatch {
    asked: watch::Sender<Option<Asked>>,
    last: LastSync,
    _task: JoinSet<()>,
}

impl CredentialsWatch {
    /// One that asks nobody before it knows whom.
    pub(super) fn of<H: Host>(agent: &Arc<Agent<H>>, vmi: &Vmi, wake: &Wake) -> Option<Self> {
        let credentials = vmi.access_credentials.iter();
        let credentials: Vec<AccessCredential> = credentials
            .filter(|credential| credential.is_of_agent())
            .cloned()
            .collect();
        if credentials.is_empty() {
            return None;
        }
        let asked = watch::Sender::new(None);
        let setter = Setter {
            agent: Arc::clone(agent),
            namespace: vmi.namespace.to_string(),
            credentials,
            last: LastSync::default(),
            wake: Arc::clone(wake),
        };
        let last = setter.last.clone();
        let mut task = JoinSet::new();
        task.spawn(setter.run(asked.subscribe()));
        Some(Self {
            asked,
            last,
            _task: task,
        })
    }

    /// Has it talk to the guest, or leave it alone.
    pub(super) fn follow(&self, wanted: &Wanted, record: &Record, observed: &Observed) {
        Asked::follow(&self.asked, may_be_probed(wanted, record, observed), record);
    }

    /// Copies the outcome since this agent started into the record, which keeps that of the agent before until then.
    pub(super) fn note(&self, record: &mut Record) {
        if let Some(last) = &*self.last.locked() {
            record.report.credentials = Some(last.clone());
        }
    }
}

#[derive(Clone, Default)]
struct LastSync(Arc<Mutex<Option<CredentialsSync>>>);

impl LastSync {
    /// No holder of the lock can leave the outcome half changed.
    fn locked(&self) -> MutexGuard<'_, Option<CredentialsSync>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Setter<H> {
    agent: Arc<Agent<H>>,
    namespace: String,
    credentials: Vec<AccessCredential>,
    last: LastSync,
    wake: Wake,
}

impl<H: Host> Setter<H> {
    async fn run(self, mut asked: watch::Receiver<Option<Asked>>) {
        while asked::each(&mut asked, |present| self.set_periodically(present)).await {}
    }

    async fn set_periodically(&self, asked: Asked) {
        let mut has: Option<(GuestCredentials, Instant)> = None;
        loop {
            match given::guest_credentials(&self.agent.objects, &self.namespace, &self.credentials)
            {
                Err(failure) => {
                    has = None;
                    self.set_outcome(CredentialsSync::Failed {
                        why: failure.message,
                    });
                }
                Ok(wanted) => {
                    let is_there = |(set, at): &(GuestCredentials, Instant)| {
                        *set == wanted && at.elapsed() < AGAIN
                    };
                    if !has.as_ref().is_some_and(is_there) {
                        let set = self
                            .agent
                            .host
                            .give_credentials(&asked.record, &wanted)
                            .await;
                        has = set.is_ok().then(|| (wanted, Instant::now()));
                        self.set_outcome(match set {
                            Ok(()) => CredentialsSync::Done,
                            Err(why) => CredentialsSync::Failed { why },
                        });
                    }
                }
            }
            tokio::time::sleep(if has.is_some() { POLL_INTERVAL } else { SOON }).await;
        }
    }

    fn set_outcome(&self, outcome: CredentialsSync) {
        let mut last = self.last.locked();
        if last.as_ref() != Some(&outcome) {
            *last = Some(outcome);
            drop(last);
            self.wake.notify_one();
        }
    }
}
