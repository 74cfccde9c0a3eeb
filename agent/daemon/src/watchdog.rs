//! Messages to the service manager (`sd_notify`).

use std::time::Duration;

use sd_notify::NotifyState;
use tracing::{debug, warn};

/// Sends states to the service manager, when there is one.
pub(crate) fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!(%error, "the service manager cannot be notified");
    }
}

/// Feeds the watchdog for as long as `alive` returns true. An agent that hangs is restarted; its guests do
/// not notice.
pub(crate) async fn feed(alive: impl Fn() -> bool) {
    let Some(timeout) = sd_notify::watchdog_enabled() else {
        return std::future::pending().await;
    };
    let half = (timeout / 2).max(Duration::from_millis(100));
    debug!(every = ?half, "feeding the watchdog");
    loop {
        if alive() {
            notify(&[NotifyState::Watchdog]);
        }
        tokio::time::sleep(half).await;
    }
}
