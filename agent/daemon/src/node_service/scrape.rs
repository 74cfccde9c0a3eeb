//! What the agent answers Prometheus.

use std::time::Duration;

use agent_host::Host;
use prometheus_client::registry::Registry;

use super::NodeService;
use crate::metrics::guests::GuestMetrics;
use crate::metrics::node::NodeMetrics;
use crate::metrics::process::ProcessMetrics;
use crate::metrics::text::{Format, render};

impl<H: Host> NodeService<H> {
    /// One scrape's text.
    pub(crate) async fn scrape(&self, format: Format) -> anyhow::Result<String> {
        let figures = self.figures().await?;
        let started_at = u64::try_from(self.node.started_at.0)?;
        let mut now = Registry::default();
        now.register_collector(Box::new(ProcessMetrics {
            node: self.node.name.clone(),
            started_at: Duration::from_millis(started_at).as_secs_f64(),
            actors: self.actors.count(),
            unreadable: figures.unreadable,
            collected_in: figures.took.as_secs_f64(),
        }));
        now.register_collector(Box::new(NodeMetrics {
            figures: self.node.reservations.figures(),
        }));
        now.register_collector(Box::new(GuestMetrics {
            figures,
            node: self.node.name.clone(),
        }));
        Ok(render(format, &[self.metrics.registry(), &now])?)
    }
}
