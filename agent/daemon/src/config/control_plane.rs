//! `[control_plane]`: whom this node dials.

use std::path::PathBuf;
use std::time::Duration;

use agent_sources::{Address, ControlPlaneSettings, CredentialFiles};
use serde::Deserialize;

/// `[control_plane]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ControlPlaneConfig {
    /// Its name on this node: objects belong to it by that, and fencing tokens are remembered under it.
    pub(crate) name: String,
    /// URL of the control plane.
    pub(crate) endpoint: String,
    /// With an `https` endpoint: this node's certificate in PEM, with those between it and a root.
    pub(crate) certificate: Option<PathBuf>,
    /// Private key of `certificate`, in PEM.
    pub(crate) key: Option<PathBuf>,
    /// Who signs the control plane's certificate.
    pub(crate) ca: Option<PathBuf>,
    /// The longest pause before it is dialled again.
    #[serde(default = "longest_pause_seconds")]
    pub(crate) longest_pause_seconds: u64,
}

/// Setting, value and the rule that it breaks.
type Fault = (&'static str, String, &'static str);

fn longest_pause_seconds() -> u64 {
    60
}

impl ControlPlaneConfig {
    /// How it is dialled.
    ///
    /// # Errors
    /// [`Fault`].
    pub(super) fn settings(&self) -> Result<ControlPlaneSettings, Fault> {
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
            credentials: self.credentials(&address)?,
            address,
            longest_pause: Duration::from_secs(self.longest_pause_seconds),
        })
    }

    /// All three files with `https`, and none without.
    fn credentials(&self, address: &Address) -> Result<Option<CredentialFiles>, Fault> {
        let file = |setting, file: &Option<PathBuf>| match file {
            None if address.is_secure() => {
                let rule = "is missing: https:// is only dialled with certificates on both sides";
                Err((setting, String::new(), rule))
            }
            Some(path) if !address.is_secure() => {
                let rule = "is only for an https:// endpoint";
                Err((setting, path.display().to_string(), rule))
            }
            Some(path) if !path.is_absolute() => {
                let value = path.display().to_string();
                Err((setting, value, "must be an absolute path"))
            }
            path => Ok(path.clone()),
        };
        let certificate = file("control_plane.certificate", &self.certificate)?;
        let key = file("control_plane.key", &self.key)?;
        let ca = file("control_plane.ca", &self.ca)?;
        Ok(certificate
            .zip(key)
            .zip(ca)
            .map(|((certificate, key), ca)| CredentialFiles {
                certificate,
                key,
                ca,
            }))
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
            certificate: None,
            key: None,
            ca: None,
            longest_pause_seconds: 60,
        };
        assert!(fine.settings().is_ok());
        let secure = ControlPlaneConfig {
            endpoint: String::from("https://north.example:7443"),
            certificate: Some(PathBuf::from("/c")),
            key: Some(PathBuf::from("/k")),
            ca: Some(PathBuf::from("/a")),
            ..fine.clone()
        };
        let settings = secure.settings();
        assert!(settings.is_ok_and(|settings| settings.credentials.is_some()));
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
            ..fine.clone()
        };
        let bare = ControlPlaneConfig {
            key: None,
            ..secure.clone()
        };
        let relative = ControlPlaneConfig {
            ca: Some(PathBuf::from("ca.crt")),
            ..secure
        };
        let needless = ControlPlaneConfig {
            certificate: Some(PathBuf::from("/c")),
            ..fine
        };
        for (config, setting) in [
            (named, "control_plane.name"),
            (outside, "control_plane.endpoint"),
            (hasty, "control_plane.longest_pause_seconds"),
            (bare, "control_plane.key"),
            (relative, "control_plane.ca"),
            (needless, "control_plane.certificate"),
        ] {
            assert_eq!(
                config.settings().map_err(|(setting, _, _)| setting).err(),
                Some(setting)
            );
        }
    }
}
