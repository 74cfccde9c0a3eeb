//! The probes of one VMI: a task for each asks the guest while it may be asked, and wakes the actor when there is
//! something to act on. The actor waits for none of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_domain::{Probe, Vmi};
use agent_host::{Host, Wake};
use agent_plan::{
    Millis, Observed, PlanEvent, ProbeCount, ProbeKind, ProbeResults, Record, Wanted, may_be_probed,
};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::asked::{self, Asked};
use crate::agent::Agent;
use crate::clock;

/// The probes of a VMI. Dropping it ends them.
pub(super) struct Probes {
    liveness: Option<Arc<Mutex<ProbeReport>>>,
    readiness: Option<Arc<Mutex<ProbeReport>>>,
    grace: Millis,
    asked: watch::Sender<Option<Asked>>,
    _tasks: JoinSet<()>,
}

/// State of one probe, and its events that are not recorded yet.
struct ProbeReport {
    count: ProbeCount,
    /// Not recorded yet; as many as a probe may report at once.
    events: Vec<PlanEvent>,
}

impl Probes {
    /// Those of a VMI, which probe nothing before the guest to probe is set.
    pub(super) fn of<H: Host>(agent: &Arc<Agent<H>>, vmi: &Vmi, wake: &Wake) -> Self {
        let asked = watch::Sender::new(None);
        let mut tasks = JoinSet::new();
        let mut start = |kind, probe: &Option<Probe>| {
            let probe = probe.as_ref()?;
            let report = Arc::new(Mutex::new(ProbeReport {
                count: ProbeCount::new(kind, probe.clone()),
                events: Vec::new(),
            }));
            let prober = Prober {
                agent: Arc::clone(agent),
                vmi: vmi.clone(),
                probe: probe.clone(),
                report: Arc::clone(&report),
                wake: Arc::clone(wake),
            };
            tasks.spawn(prober.run(asked.subscribe()));
            Some(report)
        };
        Self {
            liveness: start(ProbeKind::Liveness, &vmi.probes.liveness),
            readiness: start(ProbeKind::Readiness, &vmi.probes.readiness),
            grace: Millis(
                i64::try_from(vmi.termination_grace_period.as_millis()).unwrap_or(i64::MAX),
            ),
            asked,
            _tasks: tasks,
        }
    }

    /// Their present results.
    pub(super) fn results(&self) -> ProbeResults {
        let result = |report: &Arc<Mutex<ProbeReport>>| locked(report).count.result().clone();
        ProbeResults {
            liveness: self.liveness.as_ref().map(result),
            readiness: self.readiness.as_ref().map(result),
            grace: self.grace,
        }
    }

    /// What is to be recorded since the last time.
    pub(super) fn events(&self) -> Vec<PlanEvent> {
        let both = [&self.liveness, &self.readiness];
        let reports = both.into_iter().flatten();
        reports
            .flat_map(|report| std::mem::take(&mut locked(report).events))
            .collect()
    }

    /// Has them ask the guest, or leave it alone.
    pub(super) fn follow(&self, wanted: &Wanted, record: &Record, observed: &Observed) {
        if self.liveness.is_none() && self.readiness.is_none() {
            return;
        }
        Asked::follow(&self.asked, may_be_probed(wanted, record, observed), record);
    }
}

/// One probe.
struct Prober<H> {
    agent: Arc<Agent<H>>,
    vmi: Vmi,
    probe: Probe,
    report: Arc<Mutex<ProbeReport>>,
    wake: Wake,
}

impl<H: Host> Prober<H> {
    async fn run(self, mut asked: watch::Receiver<Option<Asked>>) {
        while asked::each(&mut asked, |present| self.ask_periodically(present)).await {
            locked(&self.report).count.pause();
        }
    }

    async fn ask_periodically(&self, asked: Asked) {
        let wait = locked(&self.report)
            .count
            .first_wait(asked.running_since, clock::now());
        let wait = Duration::from_millis(u64::try_from(wait.0).unwrap_or(0));
        let Some(first) = Instant::now().checked_add(wait) else {
            // Later than the clock goes.
            return std::future::pending().await;
        };
        let mut ticks = interval_at(first, self.probe.period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let answer = self
                .agent
                .host
                .probe(&self.vmi, &asked.record, &self.probe)
                .await;
            tracing::trace!(?answer, "probe");
            let mut report = locked(&self.report);
            let before = report.count.result().clone();
            let event = report.count.answered(answer, clock::now());
            let is_news = event.is_some() || *report.count.result() != before;
            report.events.extend(event);
            drop(report);
            if is_news {
                self.wake.notify_one();
            }
        }
    }
}

/// No holder of these locks can leave what they guard half changed.
fn locked(report: &Mutex<ProbeReport>) -> MutexGuard<'_, ProbeReport> {
    report.lock().unwrap_or_else(PoisonError::into_inner)
}
