//! Counts of spans: exported, or dropped for a reason.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::labels::Labels;

/// Counts of spans. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct SpanCounts {
    exported: Counter,
    dropped: Family<Labels, Counter>,
    queue_full: Counter,
    export_failed: Counter,
}

impl Default for SpanCounts {
    fn default() -> Self {
        let dropped: Family<Labels, Counter> = Family::default();
        let of = |reason: &str| {
            let labels = vec![("reason", reason.to_owned())];
            dropped.get_or_create(&labels).clone()
        };
        Self {
            exported: Counter::default(),
            queue_full: of("QueueFull"),
            export_failed: of("ExportFailed"),
            dropped,
        }
    }
}

impl SpanCounts {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "kvmlet_trace_spans_exported",
            "Spans that the collector took",
            self.exported.clone(),
        );
        registry.register(
            "kvmlet_trace_spans_dropped",
            "Spans that were dropped, because too many waited or the collector did not take them",
            self.dropped.clone(),
        );
    }

    /// The collector took so many.
    pub(crate) fn exported(&self, count: u64) {
        self.exported.inc_by(count);
    }

    /// The collector did not take so many.
    pub(crate) fn export_failed(&self, count: u64) {
        self.export_failed.inc_by(count);
    }

    /// One had no place among those that wait.
    pub(crate) fn queue_full(&self) {
        self.queue_full.inc();
    }

    /// How many had no place so far.
    pub(crate) fn without_place(&self) -> u64 {
        self.queue_full.get()
    }
}
