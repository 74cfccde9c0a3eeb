//! Spans on their way to the collector: a queue of a certain length, and a task that empties it.
//!
//! Who ends a span never waits: when the collector is slower than spans come, they are dropped and counted.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanExporter, SpanProcessor};
use tokio::sync::{Notify, mpsc};
use tracing::{info, warn};

use crate::metrics::spans::SpanCounts;

/// Spans that wait for the collector: about a hundred starts.
pub(super) const QUEUE: usize = 2048;

/// Spans of one request.
const BATCH: usize = 512;

/// How long the first span of a request waits for more.
const LINGER: Duration = Duration::from_secs(1);

/// How long one request may take, with its repetitions.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The near end of the queue.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) spans: mpsc::Sender<SpanData>,
    pub(super) counts: SpanCounts,
}

impl SpanProcessor for Queue {
    fn on_start(&self, _span: &mut Span, _context: &Context) {}

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() && self.spans.try_send(span).is_err() {
            self.counts.queue_full();
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// The far end of the queue.
pub(super) struct Sender<E> {
    pub(super) exporter: E,
    /// Of the collector, for the log.
    pub(super) endpoint: String,
    pub(super) spans: mpsc::Receiver<SpanData>,
    /// Notified when only what waits is to be sent.
    pub(super) closing: Arc<Notify>,
    pub(super) counts: SpanCounts,
    pub(super) trouble: Trouble,
}

/// What was logged of the collector last. A state is worth a line of the log when it changes.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    is_logged: bool,
    without_place: u64,
}

impl<E: SpanExporter> Sender<E> {
    /// Sends spans until nobody can end one any more.
    pub(super) async fn run(mut self) {
        let mut is_closing = false;
        loop {
            let mut batch = Vec::new();
            tokio::select! {
                biased;
                () = self.closing.notified(), if !is_closing => {
                    is_closing = true;
                    self.spans.close();
                    continue;
                }
                count = self.spans.recv_many(&mut batch, BATCH) => if count == 0 { return },
            }
            if !is_closing && batch.len() < BATCH {
                tokio::select! {
                    () = self.closing.notified() => {
                        is_closing = true;
                        self.spans.close();
                    }
                    () = tokio::time::sleep(LINGER) => {}
                }
            }
            while batch.len() < BATCH {
                let Ok(span) = self.spans.try_recv() else {
                    break;
                };
                batch.push(span);
            }
            self.send(batch).await;
        }
    }

    async fn send(&mut self, batch: Vec<SpanData>) {
        let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let sent = tokio::time::timeout(PATIENCE, self.exporter.export(batch)).await;
        let failed = match sent {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no answer within {PATIENCE:?}")),
        };
        match &failed {
            None => self.counts.exported(count),
            Some(_) => self.counts.export_failed(count),
        }
        let without_place = self.counts.without_place();
        let change = self.trouble.next(failed, without_place);
        let endpoint = &self.endpoint;
        match change {
            Some(ExportChange::Trouble(why)) => warn!(
                endpoint,
                "spans are dropped: {why}; kvmlet_trace_spans_dropped_total counts them"
            ),
            Some(ExportChange::Better) => info!(endpoint, "the collector takes all spans again"),
            None => {}
        }
    }
}

/// A change of the export's state that is logged.
#[derive(Debug, PartialEq, Eq)]
enum ExportChange {
    Trouble(String),
    Better,
}

impl Trouble {
    /// After a request that failed or not, when so many spans had no place in the queue so far.
    fn next(&mut self, failed: Option<String>, without_place: u64) -> Option<ExportChange> {
        let is_full = without_place > std::mem::replace(&mut self.without_place, without_place);
        let why = failed.or_else(|| {
            is_full.then(|| format!("the collector is too slow, and {QUEUE} spans wait already"))
        });
        let was_logged = std::mem::replace(&mut self.is_logged, why.is_some());
        match (was_logged, why) {
            (false, Some(why)) => Some(ExportChange::Trouble(why)),
            (true, None) => Some(ExportChange::Better),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_logged_once_and_so_is_its_end() {
        let mut trouble = Trouble::default();
        let away = || Some(String::from("nobody listens"));
        assert_eq!(trouble.next(None, 0), None);
        assert_eq!(trouble.next(away(), 0), away().map(ExportChange::Trouble));
        assert_eq!(trouble.next(away(), 0), None);
        assert_eq!(trouble.next(away(), 7), None);
        assert_eq!(trouble.next(None, 7), Some(ExportChange::Better));
        assert!(matches!(
            trouble.next(None, 9),
            Some(ExportChange::Trouble(_))
        ));
        assert_eq!(trouble.next(None, 9), Some(ExportChange::Better));
        assert_eq!(trouble.next(None, 9), None);
    }
}
