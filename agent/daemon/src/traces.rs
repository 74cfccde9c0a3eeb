//! Traces for OpenTelemetry: how a VMI starts, from the call that makes it to the first instruction of its guest. See
//! `docs/tracing.md`.
//!
//! Nothing of this runs, or is kept, unless the configuration names a collector.

mod call;
mod export;
mod moment;
mod piece;
mod pipeline;
mod start;
mod timeline;

use std::sync::{Arc, PoisonError, RwLock};

use agent_host::Host;

use crate::agent::Agent;
use crate::config::Config;

pub(crate) use self::call::Call;
pub(crate) use self::moment::Moment;
pub(crate) use self::pipeline::Pipeline;
pub(crate) use self::start::StartTrace;

/// The annotation by which a VMI knows its trace, also when another agent goes on with its start.
pub(crate) const ANNOTATION: &str = "kvmlet.io/traceparent";

/// Where spans go at present, if anywhere.
#[derive(Debug, Default)]
pub(crate) struct Traces(RwLock<Option<Arc<Pipeline>>>);

impl Traces {
    /// The way of spans that begin now.
    pub(crate) fn pipeline(&self) -> Option<Arc<Pipeline>> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Has spans of traces that begin from now on go another way. The former one ends with the last start that uses it.
    pub(crate) fn replace(&self, pipeline: Option<Pipeline>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = pipeline.map(Arc::new);
    }

    /// Sends what waits, as far as that takes no longer than [`pipeline::FLUSH`].
    pub(crate) async fn finish(&self) {
        if let Some(pipeline) = self.pipeline() {
            self.replace(None);
            pipeline.finish().await;
        }
    }
}

impl<H: Host> Agent<H> {
    /// The way of spans that a configuration wants.
    pub(crate) fn pipeline(&self, config: &Config) -> anyhow::Result<Option<Pipeline>> {
        let Some(to) = config.destination_of_spans()? else {
            return Ok(None);
        };
        let pipeline = Pipeline::begin(&to, &self.node_name(), &self.metrics.spans)?;
        Ok(Some(pipeline))
    }
}
