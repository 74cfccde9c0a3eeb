//! Rules of nftables that guests depend on, kept against whoever changes them: `nft flush ruleset`, which reloads other rules of the
//! node, would take walls and ways out of guests that run.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::LinuxHost;
use super::pod::is_over;
use crate::bridge_walls;
use crate::netfilter::{Restored, RuleWatch};
use crate::pod::PodFile;

/// From a change until rules are compared, so that many at once are one.
const SETTLE: Duration = Duration::from_secs(1);

/// Rules are compared as often without a change.
const AT_LEAST: Duration = Duration::from_secs(60);

impl LinuxHost {
    /// Puts right whatever somebody changes of the node's tables for guests, and reports what that was. Never ends.
    pub async fn keep_rules(&self, report: impl Fn(&Restored)) {
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
            let before = self.guests_with_rules();
            tokio::time::sleep(SETTLE).await;
            let restored = self.restore_rules().await;
            // A guest that comes or goes has its notes a moment before or after it has its elements.
            let guests_stay = before.is_some() && before == self.guests_with_rules();
            for one in &restored {
                if guests_stay || !one.is_of_guests {
                    report(one);
                } else {
                    tracing::debug!(table = one.table, what = one.what, "guests come and go");
                }
            }
        }
    }

    /// Run directories of the VMMs with notes of rules; `None` while one of them is over or when the notes cannot be read.
    fn guests_with_rules(&self) -> Option<Vec<PathBuf>> {
        let read = || -> io::Result<Option<Vec<_>>> {
            let mut guests = Vec::new();
            for (_, dir) in self.layout.run_dirs_of_vmms()? {
                if PodFile::read(&dir)?.is_none() && bridge_walls::read(&dir)?.is_empty() {
                    continue;
                }
                if is_over(&dir)? {
                    return Ok(None);
                }
                guests.push(dir);
            }
            guests.sort_unstable();
            Ok(Some(guests))
        };
        // Errors in them are reported where rules are made of them.
        read().unwrap_or_default()
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
