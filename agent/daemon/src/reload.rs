//! The configuration, read again while the agent runs (SIGHUP, `systemctl reload`).
//!
//! A file that is wrong changes nothing. What cannot change while the agent runs is named, and waits for
//! its next start. Guests that run are not touched in either case.

use std::sync::Arc;

use agent_host::LinuxHost;
use sd_notify::NotifyState;
use tracing::{error, info, warn};

use crate::agent::Agent;
use crate::config::{Config, Shutdown};
use crate::connector::connector;
use crate::listeners::ReloadableListeners;
use crate::logging::LevelSwitch;
use crate::node_service::NodeService;
use crate::{facts, traces, watchdog};

/// The configuration that is in force, and how to get the next one.
pub(crate) struct Reloader {
    agent: Arc<Agent<LinuxHost>>,
    node: NodeService<LinuxHost>,
    level: LevelSwitch,
    listeners: ReloadableListeners,
    /// As it was at the start, with what was changed since.
    present: Config,
}

impl Reloader {
    pub(crate) fn new(
        (agent, node): (Arc<Agent<LinuxHost>>, NodeService<LinuxHost>),
        level: LevelSwitch,
        listeners: ReloadableListeners,
        present: Config,
    ) -> Self {
        Self {
            agent,
            node,
            level,
            listeners,
            present,
        }
    }

    /// How long the node waits for its guests when it goes down.
    pub(crate) fn shutdown(&self) -> Shutdown {
        self.present.shutdown
    }

    /// Reads the file again.
    pub(crate) fn reload(&mut self) {
        watchdog::notify(&[NotifyState::Reloading]);
        match self.next() {
            Ok((next, waiting)) => self.take(next, &waiting),
            Err(error) => {
                error!("{error:#}; the configuration stays as it was");
                self.agent.metrics.reloaded(false);
            }
        }
        watchdog::notify(&[NotifyState::Ready]);
    }

    /// What the file says now, as far as it can change while the agent runs, and what has to wait.
    fn next(&self) -> anyhow::Result<(Config, Vec<&'static str>)> {
        let mut next = Config::read(&self.present.origin)?;
        let waiting = next.keep_fixed(&self.present);
        let of_node = (self.agent.node.name.as_str(), &self.agent.metrics.spans);
        let connector = connector(self.agent.host.dialer());
        let spans = traces::configured(&next, connector, of_node)?;
        // Files of certificates may be wrong where the configuration is not.
        self.listeners.change(&next)?;
        self.level.set(&next)?;
        self.agent.traces.replace(spans);
        Ok((next, waiting))
    }

    fn take(&mut self, next: Config, waiting: &[&str]) {
        let caps = facts::caps(&next, &self.agent.node.facts);
        self.agent.node.set_caps((caps, facts::firmware(&next)));
        self.agent.node.set_hooks(next.hooks.clone());
        let host = facts::host_config(&next, &self.agent.node.known_paths);
        self.agent.host.reconfigure(host);
        for uid in self
            .agent
            .node
            .reservations
            .set_rules(next.capacity.rules())
        {
            self.agent.actors.wake(&uid);
        }
        self.node.publish();
        facts::warn_of_missing(&next, &self.agent.node.facts);
        info!(file = %next.origin.display(), "the configuration was read again");
        if !waiting.is_empty() {
            warn!(
                "{} changed, and can only change at a start: systemctl restart kvmlet; guests do not notice",
                waiting.join(", ")
            );
        }
        self.present = next;
        self.agent.metrics.reloaded(true);
    }
}
