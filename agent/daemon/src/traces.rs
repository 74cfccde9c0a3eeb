//! Traces for OpenTelemetry: how a VMI starts, from the call that makes it to the first instruction of its guest. See
//! `docs/tracing.md`.
//!
//! Nothing of this runs, or is kept, unless the configuration names a collector.

mod call;
mod export;
pub(crate) mod handle;
mod moment;
mod piece;
mod pipeline;
mod start;
mod timeline;

use agent_host::Host;
use agent_sources::Connector;

pub(crate) use self::call::Call;
pub(crate) use self::handle::ANNOTATION;
pub(crate) use self::moment::Moment;
pub(crate) use self::pipeline::Pipeline;
pub(crate) use self::start::StartTrace;
use crate::agent::Agent;
use crate::config::Config;

impl<H: Host> Agent<H> {
    /// The way of spans that a configuration wants.
    pub(crate) fn pipeline(
        &self,
        config: &Config,
        connector: Connector,
    ) -> anyhow::Result<Option<Pipeline>> {
        let Some(to) = config.destination_of_spans()? else {
            return Ok(None);
        };
        let pipeline = Pipeline::begin(&to, connector, &self.node.name, &self.metrics.spans)?;
        Ok(Some(pipeline))
    }
}
