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

use agent_sources::Connector;

pub(crate) use self::call::Call;
pub(crate) use self::handle::ANNOTATION;
pub(crate) use self::moment::Moment;
pub(crate) use self::pipeline::Pipeline;
pub(crate) use self::start::StartTrace;
use crate::config::Config;
use crate::metrics::spans::SpanCounts;

/// The way of spans of a node that a configuration wants; `counts` says how many are sent.
pub(crate) fn configured(
    config: &Config,
    connector: Connector,
    (node_name, counts): (&str, &SpanCounts),
) -> anyhow::Result<Option<Pipeline>> {
    let Some(to) = config.destination_of_spans()? else {
        return Ok(None);
    };
    let pipeline = Pipeline::begin(&to, connector, node_name, counts)?;
    Ok(Some(pipeline))
}
