//! The configuration, read again while the agent runs (SIGHUP, `systemctl reload`).
//!
//! A file that is wrong changes nothing. What can not change while the agent runs is named, and waits for
//! its next start. Guests that run are not touched in either case.

use agent_host::LinuxHost;
use sd_notify::NotifyState;
use tracing::{error, info, warn};

use crate::agent::Agent;
use crate::config::Config;
use crate::logging::LevelSwitch;
use crate::{facts, watchdog};

/// The configuration that is in force, and how to get the next one.
pub(crate) struct Reloader {
    agent: Agent<LinuxHost>,
    level: LevelSwitch,
    /// As it was at the start, with what was changed since.
    present: Config,
}

impl Reloader {
    pub(crate) fn new(agent: Agent<LinuxHost>, level: LevelSwitch, present: Config) -> Self {
        Self {
            agent,
            level,
            present,
        }
    }

    /// Reads the file again.
    pub(crate) fn reload(&mut self) {
        watchdog::tell(&[NotifyState::Reloading]);
        let path = self.present.origin.clone();
        match Config::read(&path).and_then(|next| self.level.set(&next).map(|()| next)) {
            Ok(next) => self.take(next),
            Err(error) => {
                let chain = error_chain(&error);
                error!("{chain}; the configuration stays as it was");
                self.agent.metrics.reloaded(false);
            }
        }
        watchdog::tell(&[NotifyState::Ready]);
    }

    fn take(&mut self, mut next: Config) {
        let waiting = next.keep_fixed(&self.present);
        let caps = facts::caps(&next, &self.agent.facts);
        self.agent.set_caps((caps, facts::firmware(&next)));
        self.agent.host.reconfigure(facts::host_config(&next));
        facts::warn_of_lacks(&next, &self.agent.facts);
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

fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
