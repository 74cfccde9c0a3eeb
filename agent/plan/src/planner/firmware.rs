//! A guest that firmware boots: whether firmware found anything to boot.
//!
//! No event reports output of firmware, so the console is polled: often at first, then less and less.

use super::draft::Draft;
use crate::condition::EventKind;
use crate::record::FirmwareWatch;
use crate::time::Millis;

/// The first poll interval; later intervals are a quarter of the time since the start.
const FIRST_POLL_INTERVAL: Millis = Millis::from_secs(1);

/// Longest poll interval: the actor observes that often anyway.
const MAX_POLL_INTERVAL: Millis = Millis::from_secs(60);

impl Draft<'_> {
    /// The vCPUs run, after `resets`.
    pub(super) fn watch_firmware(&mut self, resets: u64) {
        if !self.wanted.firmware {
            return;
        }
        let now = self.now;
        let watch = self
            .plan
            .record
            .report
            .firmware
            .get_or_insert(FirmwareWatch {
                resets,
                since: now,
                reported_at: None,
            });
        if watch.resets != resets || watch.since > now {
            watch.resets = resets;
            watch.since = now;
        }
        let pause = Millis((now.since(watch.since).0 / 4).max(FIRST_POLL_INTERVAL.0));
        let stands = self.observed.stands_still.present();
        if let Some(stands) = stands.filter(|stands| watch.reported_at != Some(stands.at)) {
            watch.reported_at = Some(stands.at);
            let words = stands.words;
            let message = format!("Firmware found nothing to boot from and stays at {words:?}");
            self.event(EventKind::Warning, "NoBootableDevice", &message);
        }
        if pause.0 < MAX_POLL_INTERVAL.0 {
            self.poll_after(pause);
        }
    }
}
