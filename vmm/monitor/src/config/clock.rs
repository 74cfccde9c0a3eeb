//! `clock` of a machine's configuration.

use proto_vmm::v1;
use vmm_machine::{ClockConfig, MissedTicks};

use super::error::FieldError;

/// 100 years: the clock shows two digits of the year and the century apart.
const MAX_OFFSET_SECONDS: i64 = 100 * 365 * 86_400;

pub(super) fn clock(wire: v1::Clock) -> Result<ClockConfig, FieldError> {
    let offset = wire.rtc_offset_seconds;
    if offset.unsigned_abs() >= MAX_OFFSET_SECONDS.unsigned_abs() {
        return Err(FieldError::new(
            "clock.rtc_offset_seconds",
            format!("is {offset}; it must be less than {MAX_OFFSET_SECONDS} either way"),
        ));
    }
    let missed = if wire.pit_discards_missed_ticks {
        MissedTicks::Discard
    } else {
        MissedTicks::Deliver
    };
    if wire.no_pit && missed == MissedTicks::Discard {
        return Err(FieldError::new(
            "clock.pit_discards_missed_ticks",
            "is set, but so is no_pit",
        ));
    }
    Ok(ClockConfig {
        rtc_offset_seconds: offset,
        pit: (!wire.no_pit).then_some(missed),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_utc_and_a_pit() {
        assert_eq!(clock(v1::Clock::default()), Ok(ClockConfig::default()));
    }

    #[test]
    fn every_wrong_field_is_named() {
        let far = v1::Clock {
            rtc_offset_seconds: i64::MIN,
            ..v1::Clock::default()
        };
        assert_eq!(clock(far).unwrap_err().field, "clock.rtc_offset_seconds");
        let both = v1::Clock {
            no_pit: true,
            pit_discards_missed_ticks: true,
            ..v1::Clock::default()
        };
        assert_eq!(
            clock(both).unwrap_err().field,
            "clock.pit_discards_missed_ticks"
        );
    }
}
