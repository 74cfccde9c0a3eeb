//! Rules of nftables that guests depend on, kept against whoever changes them: `nft flush ruleset`, which reloads other rules of the
//! node, would take walls and ways out of guests that run.

use std::time::Duration;

use super::LinuxHost;
use crate::netfilter::{Restored, RuleWatch};

/// From a change until rules are compared, so that many at once are one.
const SETTLE: Duration = Duration::from_secs(1);

/// Rules are compared as often without a change.
const AT_LEAST: Duration = Duration::from_secs(60);

impl LinuxHost {
    /// Puts right whatever somebody changes of the node's tables for guests, and tells what that was. Never ends.
    pub async fn keep_rules(&self, tell: impl Fn(&Restored)) {
        let mut watch = RuleWatch::open()
            .inspect_err(|error| tracing::warn!(%error, "changes of rules are found once a minute"))
            .ok();
        loop {
            let changed = async {
                match &mut watch {
                    Some(watch) => watch.changed().await,
                    None => std::future::pending().await,
                }
            };
            let heard = tokio::time::timeout(AT_LEAST, changed).await;
            if let Ok(Err(error)) = heard {
                tracing::warn!(%error, "changes of rules are found once a minute");
                watch = None;
            }
            tokio::time::sleep(SETTLE).await;
            self.restore_rules().await.iter().for_each(&tell);
        }
    }

    async fn restore_rules(&self) -> Vec<Restored> {
        let unread = |error: std::io::Error| {
            tracing::warn!(%error, "the rules for guests are not compared with what is wanted");
        };
        let mut restored = Vec::new();
        match self.restore_pod_rules().await {
            Ok(some) => restored.extend(some),
            Err(error) => unread(error),
        }
        match self.restore_bridge_walls().await {
            Ok(some) => restored.extend(some),
            Err(error) => unread(error),
        }
        restored
    }
}
