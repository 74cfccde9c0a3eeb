//! `[control_plane]`: whom this node dials.

use std::time::Duration;

use agent_sources::{Address, ControlPlaneSettings};
use serde::Deserialize;

/// `[control_plane]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ControlPlaneConfig {
    /// Its name on this node: objects belong to it by that, and fencing tokens are remembered under it.
    pub(crate) name: String,
    /// Where it is.
    pub(crate) endpoint: String,
    /// The longest pause before it is dialled again.
    #[serde(default = "longest_pause_seconds")]
    pub(crate) longest_pause_seconds: u64,
}

fn longest_pause_seconds() -> u64 {
    60
}

impl ControlPlaneConfig {
    /// How it is dialled.
    ///
    /// # Errors
    /// Setting, value and the rule that it breaks.
    pub(super) fn settings(
        &self,
    ) -> Result<ControlPlaneSettings, (&'static str, String, &'static str)> {
        let is_legal =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if !(1..=63).contains(&self.name.len()) || !self.name.bytes().all(is_legal) {
            let rule = "must be 1 to 63 lower case letters, digits and '-'";
            return Err(("control_plane.name", self.name.clone(), rule));
        }
        if !(1..=3600).contains(&self.longest_pause_seconds) {
            let value = self.longest_pause_seconds.to_string();
            return Err((
                "control_plane.longest_pause_seconds",
                value,
                "must be 1 to 3600",
            ));
        }
        let address = Address::parse(&self.endpoint)
            .map_err(|rule| ("control_plane.endpoint", self.endpoint.clone(), rule))?;
        Ok(ControlPlaneSettings {
            name: self.name.clone(),
            address,
            longest_pause: Duration::from_secs(self.longest_pause_seconds),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named() {
        let fine = ControlPlaneConfig {
            name: String::from("north"),
            endpoint: String::from("unix:/run/north.sock"),
            longest_pause_seconds: 60,
        };
        assert!(fine.settings().is_ok());
        let named = ControlPlaneConfig {
            name: String::from("North/1"),
            ..fine.clone()
        };
        let outside = ControlPlaneConfig {
            endpoint: String::from("http://10.0.0.1:1"),
            ..fine.clone()
        };
        let hasty = ControlPlaneConfig {
            longest_pause_seconds: 0,
            ..fine
        };
        for (config, setting) in [
            (named, "control_plane.name"),
            (outside, "control_plane.endpoint"),
            (hasty, "control_plane.longest_pause_seconds"),
        ] {
            assert_eq!(
                config.settings().map_err(|(setting, _, _)| setting).err(),
                Some(setting)
            );
        }
    }
}
