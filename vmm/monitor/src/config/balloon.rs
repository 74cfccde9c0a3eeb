//! Balloons from the wire.

use std::time::Duration;

use proto_vmm::v1;
use vmm_devices::virtio::balloon::{BALLOON_PAGE_BYTES, BalloonConfig};
use vmm_machine::DeviceConfig;

use super::error::FieldError;

/// Longest interval between two questions for statistics: a day.
const MAX_INTERVAL_MS: u32 = 24 * 60 * 60 * 1000;

/// Reads a balloon. Whether it is larger than memory is found out when it is made.
pub(super) fn balloon(path: &str, wire: v1::VirtioBalloon) -> Result<DeviceConfig, FieldError> {
    if !wire.target_bytes.is_multiple_of(BALLOON_PAGE_BYTES) {
        let rule = format!(
            "is {}; it must be a multiple of {BALLOON_PAGE_BYTES}",
            wire.target_bytes
        );
        return Err(FieldError::new(
            format!("{path}.balloon.target_bytes"),
            rule,
        ));
    }
    if wire.stats_interval_ms > MAX_INTERVAL_MS {
        let rule = format!(
            "is {}; the most is {MAX_INTERVAL_MS}",
            wire.stats_interval_ms
        );
        let field = format!("{path}.balloon.stats_interval_ms");
        return Err(FieldError::new(field, rule));
    }
    Ok(DeviceConfig::Balloon(BalloonConfig {
        target_bytes: wire.target_bytes,
        deflate_on_oom: wire.deflate_on_oom,
        free_page_reporting: wire.free_page_reporting,
        stats_interval: Duration::from_millis(wire.stats_interval_ms.into()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_balloon_is_whole_pages_and_asks_once_a_day_at_least() {
        let wire = v1::VirtioBalloon {
            target_bytes: 8192,
            stats_interval_ms: MAX_INTERVAL_MS,
            ..v1::VirtioBalloon::default()
        };
        assert!(balloon("d", wire).is_ok());
        let target = v1::VirtioBalloon {
            target_bytes: 8193,
            ..wire
        };
        let interval = v1::VirtioBalloon {
            stats_interval_ms: MAX_INTERVAL_MS + 1,
            ..wire
        };
        for (wire, field) in [
            (target, "d.balloon.target_bytes"),
            (interval, "d.balloon.stats_interval_ms"),
        ] {
            assert_eq!(balloon("d", wire).err().unwrap().field, field);
        }
    }
}
