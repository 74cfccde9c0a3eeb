//! Time zones, as this node knows them.

use jiff::Timestamp;
use jiff::tz::TimeZoneDatabase;

/// The node does not know a zone.
#[derive(Debug, thiserror::Error)]
#[error("the time zone {name} is not known on this node; install its zone data (package tzdata)")]
pub(crate) struct ZoneError {
    name: String,
    #[source]
    source: jiff::Error,
}

/// Offset of a zone's local time from UTC now, in seconds.
pub(crate) fn offset_now(name: &str) -> Result<i64, ZoneError> {
    // Read anew each time: a node's zone data is updated while the agent runs.
    let zone = TimeZoneDatabase::from_env()
        .get(name)
        .map_err(|source| ZoneError {
            name: name.to_owned(),
            source,
        })?;
    Ok(i64::from(zone.to_offset(Timestamp::now()).seconds()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_ahead_of_utc_or_is_not_known() {
        let error = offset_now("Atlantis/Capital").unwrap_err();
        assert!(error.to_string().contains("Atlantis/Capital"));
        // A machine without zone data knows none.
        if let Ok(offset) = offset_now("Asia/Kolkata") {
            assert_eq!(offset, 19_800);
        }
    }
}
