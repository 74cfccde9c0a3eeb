//! Metrics for Prometheus: the agent's own instruments here, guests' figures as they are collected for
//! each scrape.

mod families;
pub(crate) mod guests;
pub(crate) mod http;
mod labels;
pub(crate) mod node;
pub(crate) mod process;
pub(crate) mod spans;
pub(crate) mod text;

use std::fmt;
use std::time::{Duration, Instant};

use agent_plan::{Phase, Record};
use agent_sources::{AnsweredCall, ObjectRef};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use self::labels::{Histograms, Labels, fine, of_vmi, phases};
use self::spans::SpanCounts;

/// The instruments.
pub(crate) struct Metrics {
    registry: Registry,
    begun: Instant,
    rounds: Histogram,
    rounds_under_way: Gauge,
    round_failures: Counter,
    synced: Family<Labels, Counter>,
    actions: Histograms,
    action_failures: Family<Labels, Counter>,
    adopted: Counter,
    adoption_seconds: Gauge<f64, std::sync::atomic::AtomicU64>,
    commits: Histogram,
    commit_failures: Counter,
    calls: Family<Labels, Counter>,
    call_times: Histograms,
    transitions: Histograms,
    since_creation: Histograms,
    since_deletion: Histograms,
    rules_restored: Family<Labels, Counter>,
    reload_is_good: Gauge,
    reloaded_at: Gauge<f64, std::sync::atomic::AtomicU64>,
    pub(crate) spans: SpanCounts,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// All at nothing.
    pub(crate) fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            begun: Instant::now(),
            rounds: fine(),
            rounds_under_way: Gauge::default(),
            round_failures: Counter::default(),
            synced: Family::default(),
            actions: Family::new_with_constructor(phases),
            action_failures: Family::default(),
            adopted: Counter::default(),
            adoption_seconds: Gauge::default(),
            commits: fine(),
            commit_failures: Counter::default(),
            calls: Family::default(),
            call_times: Family::new_with_constructor(fine),
            transitions: Family::new_with_constructor(phases),
            since_creation: Family::new_with_constructor(phases),
            since_deletion: Family::new_with_constructor(phases),
            rules_restored: Family::default(),
            reload_is_good: Gauge::default(),
            reloaded_at: Gauge::default(),
            spans: SpanCounts::default(),
        };
        metrics.reloaded(true);
        metrics.register_actors();
        metrics.register_service();
        metrics.register_phases();
        metrics.register_configuration();
        metrics.spans.register(&mut metrics.registry);
        metrics
    }

    fn register_actors(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "kvmlet_reconcile_duration_seconds",
            "Time of one round of a VMI's actor: observe, plan, store, execute",
            self.rounds.clone(),
        );
        registry.register(
            "kvmlet_reconciles_in_progress",
            "Rounds that are under way, including those that wait for the ledger or the host",
            self.rounds_under_way.clone(),
        );
        registry.register(
            "kvmlet_reconcile_failures",
            "Rounds that were abandoned because the ledger failed",
            self.round_failures.clone(),
        );
        registry.register(
            "kubevirt_vmi_sync",
            "Total number of times a VirtualMachineInstance has been synced",
            self.synced.clone(),
        );
        registry.register(
            "kvmlet_action_duration_seconds",
            "Time of one action on the host for a VMI, by action",
            self.actions.clone(),
        );
        registry.register(
            "kvmlet_action_failures",
            "Actions that failed, by action and reason",
            self.action_failures.clone(),
        );
        registry.register(
            "kvmlet_adopted_guests",
            "Guests that were found running when the agent started",
            self.adopted.clone(),
        );
        registry.register(
            "kvmlet_adoption_duration_seconds",
            "Time from the agent's start to the adoption of the last guest that was found running",
            self.adoption_seconds.clone(),
        );
    }

    fn register_service(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "kvmlet_store_commit_duration_seconds",
            "Time of one transaction of the ledger until it was on disk",
            self.commits.clone(),
        );
        registry.register(
            "kvmlet_store_commit_failures",
            "Transactions of the ledger that were abandoned, including those that a rule refused",
            self.commit_failures.clone(),
        );
        registry.register(
            "kvmlet_grpc_requests",
            "Calls of the gRPC service that were answered, by method and code",
            self.calls.clone(),
        );
        registry.register(
            "kvmlet_grpc_request_duration_seconds",
            "Time of one call of the gRPC service; of a stream, until it began",
            self.call_times.clone(),
        );
    }

    fn register_configuration(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "kvmlet_network_rules_restored",
            "How often rules of nftables for guests were put right after somebody else had changed them, by table",
            self.rules_restored.clone(),
        );
        registry.register(
            "kvmlet_config_last_reload_successful",
            "Whether the configuration was valid when it was last read",
            self.reload_is_good.clone(),
        );
        registry.register(
            "kvmlet_config_last_reload_success_timestamp_seconds",
            "Time at which a valid configuration was last read, in seconds since 1970",
            self.reloaded_at.clone(),
        );
    }

    fn register_phases(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "kubevirt_vmi_phase_transition_time_seconds",
            "Histogram of VM phase transitions duration between different phases in seconds",
            self.transitions.clone(),
        );
        registry.register(
            "kubevirt_vmi_phase_transition_time_from_creation_seconds",
            "Histogram of VM phase transitions duration from creation time in seconds",
            self.since_creation.clone(),
        );
        registry.register(
            "kubevirt_vmi_phase_transition_time_from_deletion_seconds",
            "Histogram of VM phase transitions duration from deletion time in seconds",
            self.since_deletion.clone(),
        );
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// A round begins; it ends when the answer is dropped.
    pub(crate) fn round(&self) -> Round<'_> {
        self.rounds_under_way.inc();
        Round {
            metrics: self,
            begun: Instant::now(),
        }
    }

    /// A round came to nothing.
    pub(crate) fn round_failed(&self) {
        self.round_failures.inc();
    }

    /// A VMI was looked at.
    pub(crate) fn synced(&self, target: &ObjectRef) {
        self.synced.get_or_create(&of_vmi(target)).inc();
    }

    /// A VMI is gone; its own series go with it.
    pub(crate) fn gone(&self, target: &ObjectRef) {
        self.synced.remove(&of_vmi(target));
    }

    /// An action was carried out, or failed for a reason.
    pub(crate) fn acted(&self, action: &'static str, failed: Option<&str>, took: Duration) {
        let labels = vec![("action", action.to_owned())];
        self.actions
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
        if let Some(reason) = failed {
            let labels = vec![("action", action.to_owned()), ("reason", reason.to_owned())];
            self.action_failures.get_or_create(&labels).inc();
        }
    }

    /// A guest was found running.
    pub(crate) fn adopted(&self) {
        self.adopted.inc();
        self.adoption_seconds
            .set(self.begun.elapsed().as_secs_f64());
    }

    /// A transaction ended.
    pub(crate) fn committed(&self, is_done: bool, took: Duration) {
        if is_done {
            self.commits.observe(took.as_secs_f64());
        } else {
            self.commit_failures.inc();
        }
    }

    /// A table of nftables was put right.
    pub(crate) fn restored(&self, table: &str) {
        let labels = vec![("table", table.to_owned())];
        self.rules_restored.get_or_create(&labels).inc();
    }

    /// The configuration was read, and was right or wrong.
    pub(crate) fn reloaded(&self, is_good: bool) {
        self.reload_is_good.set(i64::from(is_good));
        if is_good {
            let now = u64::try_from(crate::clock::now().0).unwrap_or(0);
            self.reloaded_at
                .set(Duration::from_millis(now).as_secs_f64());
        }
    }

    /// A call was answered.
    pub(crate) fn count_call(&self, call: &AnsweredCall) {
        let method = ("method", call.method.to_owned());
        self.call_times
            .get_or_create(&vec![method.clone()])
            .observe(call.took.as_secs_f64());
        let labels = vec![method, ("code", call.code.clone())];
        self.calls.get_or_create(&labels).inc();
    }

    /// A VMI left `before`; all phases that it reached since are counted.
    pub(crate) fn left_phase(&self, before: Phase, record: &Record) {
        let Some(first) = record.report.phases.first() else {
            return;
        };
        for pair in record.report.phases.windows(2) {
            let [last, entry] = pair else { continue };
            if entry.phase <= before {
                continue;
            }
            let phase = ("phase", entry.phase.as_str().to_owned());
            let last_phase = ("last_phase", last.phase.as_str().to_owned());
            let seconds = |since: agent_plan::Timestamp| {
                let span = u64::try_from(entry.at.since(since).0).unwrap_or(0);
                Duration::from_millis(span).as_secs_f64()
            };
            self.transitions
                .get_or_create(&vec![phase.clone(), last_phase])
                .observe(seconds(last.at));
            self.since_creation
                .get_or_create(&vec![phase.clone()])
                .observe(seconds(first.at));
            if let (Some(stop), true) = (&record.report.stop, entry.phase.is_final()) {
                self.since_deletion
                    .get_or_create(&vec![phase])
                    .observe(seconds(stop.since));
            }
        }
    }
}

/// A round that is under way.
pub(crate) struct Round<'a> {
    metrics: &'a Metrics,
    begun: Instant,
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        self.metrics.rounds_under_way.dec();
        self.metrics
            .rounds
            .observe(self.begun.elapsed().as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use agent_plan::{PhaseEntry, Timestamp, VmiId};

    use super::text::{Format, render};
    use super::*;

    #[test]
    fn a_start_is_counted_phase_by_phase_and_once() {
        let id = VmiId {
            uid: String::from("u1"),
            namespace: String::from("default"),
            name: String::from("web"),
        };
        let mut record = Record::new(id, Timestamp(1000));
        for (phase, at) in [(Phase::Scheduling, 1004), (Phase::Running, 1030)] {
            let at = Timestamp(at);
            record.report.phases.push(PhaseEntry { phase, at });
        }
        let metrics = Metrics::new();
        metrics.left_phase(Phase::Pending, &record);
        metrics.left_phase(Phase::Running, &record);
        let text = render(Format::Prometheus, &[metrics.registry()]).unwrap();
        for line in [
            "kubevirt_vmi_phase_transition_time_seconds_sum{phase=\"Running\",last_phase=\"Scheduling\"} 0.026",
            "kubevirt_vmi_phase_transition_time_from_creation_seconds_sum{phase=\"Running\"} 0.03",
            "kubevirt_vmi_phase_transition_time_from_creation_seconds_count{phase=\"Running\"} 1",
            "kubevirt_vmi_phase_transition_time_from_creation_seconds_bucket{le=\"0.02\",phase=\"Running\"} 0",
            "kubevirt_vmi_phase_transition_time_from_creation_seconds_bucket{le=\"0.03\",phase=\"Running\"} 1",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
        }
        assert!(!text.contains("from_deletion_seconds_count"), "{text}");
    }
}
