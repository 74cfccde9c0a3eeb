//! Clock and timers.

use proto_node::vmi::{Clock, DomainSpec};

use super::review::Review;
use crate::cpu::{ClockOptions, ClockTime};
use crate::error::{FieldError, Rule};

const CLOCK: &str = "spec.domain.clock";
/// 100 years: the real-time clock knows one century.
const MAX_OFFSET_SECONDS: u64 = 100 * 365 * 86_400;
const MAX_ZONE_BYTES: usize = 64;

/// The guest's clocks. Those of Hyper-V and KVM belong to the CPU's options.
pub(super) fn judge(domain: &DomainSpec, review: &mut Review<'_>) -> ClockOptions {
    let clock = domain.clock.clone().unwrap_or_default();
    let pit = clock
        .timer
        .as_ref()
        .and_then(|timer| timer.pit.clone())
        .unwrap_or_default();
    ClockOptions {
        time: time(&clock, review),
        pit: pit.present.unwrap_or(true),
        pit_discards_missed_ticks: pit.tick_policy == "discard",
    }
}

fn time(clock: &Clock, review: &mut Review<'_>) -> ClockTime {
    let zone = &clock.timezone;
    if zone.is_empty() {
        let offset_seconds = clock
            .utc
            .as_ref()
            .and_then(|utc| utc.offset_seconds)
            .unwrap_or(0);
        if offset_seconds.unsigned_abs() >= MAX_OFFSET_SECONDS {
            review.invalid(
                &format!("{CLOCK}.utc.offsetSeconds"),
                &offset_seconds.to_string(),
                "must be less than 100 years",
            );
        }
        return ClockTime::Utc { offset_seconds };
    }
    let path = format!("{CLOCK}.timezone");
    if clock.utc.is_some() {
        let error = FieldError::new(
            path.as_str(),
            Rule::NotSupported,
            "not supported by this release together with utc, which KubeVirt then follows alone",
        );
        review.push(error.value(zone).fix("leave out utc or timezone"));
    }
    if !is_zone(zone) {
        review.invalid(
            &path,
            zone,
            "must be the name of a time zone, such as Europe/Berlin",
        );
    }
    ClockTime::Zone { name: zone.clone() }
}

/// Whether the name may be looked for among the node's files.
fn is_zone(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"_+-/".contains(&byte);
    name.len() <= MAX_ZONE_BYTES
        && name.bytes().all(legal)
        && name.split('/').all(|part| !part.is_empty())
}
