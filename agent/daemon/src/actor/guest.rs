//! What the guest reports of itself and what the node has seen of it: a task asks the agent in it and reads the neighbour table now
//! and then, and wakes the actor when there is news.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_domain::{Attachment, Interface, Vmi};
use agent_host::{Host, Wake};
use agent_plan::{
    GuestAgentReport, Millis, NetworkObservation, Observed, Record, Timestamp, Wanted,
    may_be_probed,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::asked::{self, Asked};
use crate::agent::Agent;
use crate::clock;

/// After the guest began to run, and until its agent has answered once.
const SOON: Duration = Duration::from_secs(10);

/// Questions that are asked soon: a guest that has no agent by then may never have one.
const SOON_TIMES: u32 = 12;

/// What these questions take together.
const YOUNG: Millis = Millis::from_secs(120);

/// Between two later questions: addresses come and go.
const LATER: Duration = Duration::from_secs(60);

/// Questions in a row without an answer after which the agent is held to be gone: a guest may be busy.
const MISSES: u32 = 2;

/// The task of one VMI. Dropping it ends it.
pub(super) struct GuestWatch {
    asked: watch::Sender<Option<Asked>>,
    reports: LastReports,
    _task: JoinSet<()>,
}

impl GuestWatch {
    /// One that asks no guest before the first call of [`Self::follow`].
    pub(super) fn of<H: Host>(agent: &Arc<Agent<H>>, vmi: &Vmi, wake: &Wake) -> Self {
        let asked = watch::Sender::new(None);
        let is_seen = |it: &Interface| matches!(it.attachment, Attachment::Network(_));
        let asker = GuestPoller {
            agent: Arc::clone(agent),
            seen: vmi.interfaces.iter().any(is_seen).then(|| vmi.clone()),
            reports: LastReports::default(),
            wake: Arc::clone(wake),
        };
        let reports = asker.reports.clone();
        let mut task = JoinSet::new();
        task.spawn(asker.run(asked.subscribe()));
        Self {
            asked,
            reports,
            _task: task,
        }
    }

    /// Has it ask the guest, or leave it alone.
    pub(super) fn follow(&self, wanted: &Wanted, record: &Record, observed: &Observed) {
        Asked::follow(&self.asked, may_be_probed(wanted, record, observed), record);
    }

    /// Copies the guest's reports since this agent started into the record, which keeps those of the agent before until then.
    pub(super) fn note(&self, record: &mut Record) {
        if record.report.end.is_some() {
            return;
        }
        let reports = self.reports.locked();
        if let Some(networks) = &reports.networks {
            record.report.seen.clone_from(&networks.addresses);
            record.report.judged.clone_from(&networks.judged);
        }
        match &reports.agent {
            AgentReport::None => {}
            AgentReport::Received(report) => {
                record.report.guest = Some(GuestAgentReport::clone(report))
            }
            AgentReport::Gone => {
                if let Some(guest) = &mut record.report.guest {
                    guest.answers = false;
                }
            }
        }
    }
}

/// The last report of the agent in the guest.
#[derive(Default, PartialEq, Eq)]
enum AgentReport {
    /// No report yet, and not held to be gone.
    #[default]
    None,
    Received(Box<GuestAgentReport>),
    /// It does not answer any more, or never did.
    Gone,
}

/// The last reports on the guest.
#[derive(Default)]
struct Reports {
    agent: AgentReport,
    /// `None` before the first observation.
    networks: Option<NetworkObservation>,
}

#[derive(Clone, Default)]
struct LastReports(Arc<Mutex<Reports>>);

impl LastReports {
    /// No holder of the lock can leave a report half changed.
    fn locked(&self) -> MutexGuard<'_, Reports> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct GuestPoller<H> {
    agent: Arc<Agent<H>>,
    /// The VMI, if it has an interface where the node sees neighbours.
    seen: Option<Vmi>,
    reports: LastReports,
    wake: Wake,
}

impl<H: Host> GuestPoller<H> {
    async fn run(self, mut asked: watch::Receiver<Option<Asked>>) {
        while asked::each(&mut asked, |present| self.ask_periodically(present)).await {}
    }

    async fn ask_periodically(&self, asked: Asked) {
        tokio::time::sleep(apart(&asked.record.id.uid)).await;
        let (mut soon, mut misses) = (times_soon(asked.running_since, clock::now()), 0);
        loop {
            self.read_networks(&asked.record).await;
            match self.agent.host.guest(&asked.record).await {
                Ok(report) => {
                    (soon, misses) = (0, 0);
                    self.set_guest_agent(AgentReport::Received(Box::new(report)));
                }
                Err(why) => {
                    tracing::trace!(why, "the agent in the guest does not answer");
                    soon = soon.saturating_sub(1);
                    misses += 1;
                    if misses == MISSES {
                        self.set_guest_agent(AgentReport::Gone);
                    }
                }
            }
            tokio::time::sleep(if soon > 0 { SOON } else { LATER }).await;
        }
    }

    /// Reads with which addresses the guest has been seen, and by which it is judged.
    async fn read_networks(&self, record: &Record) {
        let Some(vmi) = &self.seen else {
            return;
        };
        match self.agent.host.observe_networks(vmi, record).await {
            Ok(networks) => self.change(|reports| &mut reports.networks, Some(networks)),
            Err(why) => tracing::debug!(why, "the guest's addresses cannot be read"),
        }
    }

    fn set_guest_agent(&self, report: AgentReport) {
        self.change(|reports| &mut reports.agent, report);
    }

    fn change<T: PartialEq>(&self, of: impl FnOnce(&mut Reports) -> &mut T, value: T) {
        let mut reports = self.reports.locked();
        let last = of(&mut reports);
        if *last != value {
            *last = value;
            drop(reports);
            self.wake.notify_one();
        }
    }
}

/// How often the agent in a guest is asked soon. One that runs for longer than these questions take was asked by the node's agent
/// of before.
fn times_soon(running_since: Timestamp, now: Timestamp) -> u32 {
    let is_young = now.since(running_since) < YOUNG;
    if is_young { SOON_TIMES } else { 0 }
}

/// Guests that came together, or that a new agent finds, are not asked together: a time from half a second to two that
/// is this guest's own.
fn apart(uid: &str) -> Duration {
    let mix = |sum: u64, byte: u8| sum.wrapping_mul(31).wrapping_add(byte.into());
    Duration::from_millis(500 + uid.bytes().fold(0, mix) % 1500)
}
