//! What an image says of machines that start from it: variables of the environment in its configuration, as those of KubeVirt's
//! `containerdisks` have them and CDI reads them. They are kept and shown; nothing follows from them.

use serde::{Deserialize, Serialize};

/// Longest value that is kept: that of a name of Kubernetes'.
const MAX_BYTES: usize = 253;

/// Defaults of an image. Empty: it says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageDefaults {
    /// Name of an instance type.
    pub instancetype: String,
    /// Its kind.
    pub instancetype_kind: String,
    /// Name of a preference.
    pub preference: String,
    /// Its kind.
    pub preference_kind: String,
}

#[derive(Deserialize)]
struct Document {
    config: Option<Config>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Config {
    env: Option<Vec<String>>,
}

impl ImageDefaults {
    /// Reads the configuration of an image (OCI Image Format Specification 1.1, "Image Configuration").
    ///
    /// # Errors
    /// When it is no JSON, or has another form.
    pub(crate) fn of_config(config: &[u8]) -> serde_json::Result<Self> {
        let document: Document = serde_json::from_slice(config)?;
        let env = document.config.and_then(|config| config.env);
        let env = env.into_iter().flatten();
        Ok(Self::of_variables(&env.collect::<Vec<_>>()))
    }

    /// The same of a configuration that may have any form: the disk may be sound.
    pub(crate) fn of_any(config: &[u8]) -> Self {
        Self::of_config(config).unwrap_or_default()
    }

    /// Of lines `NAME=VALUE`. What can be no name of an object says nothing.
    pub(crate) fn of_variables(lines: &[impl AsRef<str>]) -> Self {
        let mut defaults = Self::default();
        let pairs = lines
            .iter()
            .filter_map(|line| line.as_ref().split_once('='));
        for (name, value) in pairs.filter(|(_, value)| is_name(value)) {
            let places = defaults.places();
            if let Some((_, place)) = places.into_iter().find(|(known, _)| *known == name) {
                value.clone_into(place);
            }
        }
        defaults
    }

    /// The reverse.
    pub(crate) fn variables(&self) -> Vec<String> {
        let mut defaults = self.clone();
        let places = defaults.places().into_iter();
        let said = places.filter(|(_, value)| !value.is_empty());
        said.map(|(name, value)| format!("{name}={value}"))
            .collect()
    }

    fn places(&mut self) -> [(&'static str, &mut String); 4] {
        [
            (
                "INSTANCETYPE_KUBEVIRT_IO_DEFAULT_INSTANCETYPE",
                &mut self.instancetype,
            ),
            (
                "INSTANCETYPE_KUBEVIRT_IO_DEFAULT_INSTANCETYPE_KIND",
                &mut self.instancetype_kind,
            ),
            (
                "INSTANCETYPE_KUBEVIRT_IO_DEFAULT_PREFERENCE",
                &mut self.preference,
            ),
            (
                "INSTANCETYPE_KUBEVIRT_IO_DEFAULT_PREFERENCE_KIND",
                &mut self.preference_kind,
            ),
        ]
    }
}

fn is_name(value: &str) -> bool {
    let is_sound = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
    (1..=MAX_BYTES).contains(&value.len()) && value.bytes().all(is_sound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_says_what_it_is_for_by_its_environment() {
        let config = r#"{"architecture": "amd64", "config": {"Env": [
            "PATH=/bin", "INSTANCETYPE_KUBEVIRT_IO_DEFAULT_INSTANCETYPE=u1.small",
            "INSTANCETYPE_KUBEVIRT_IO_DEFAULT_PREFERENCE=fedora",
            "INSTANCETYPE_KUBEVIRT_IO_DEFAULT_PREFERENCE_KIND=VirtualMachinePreference"
        ]}}"#;
        let defaults = ImageDefaults::of_config(config.as_bytes()).unwrap();
        let expected = ImageDefaults {
            instancetype: String::from("u1.small"),
            instancetype_kind: String::new(),
            preference: String::from("fedora"),
            preference_kind: String::from("VirtualMachinePreference"),
        };
        assert_eq!(defaults, expected);
        assert_eq!(ImageDefaults::of_variables(&defaults.variables()), defaults);
    }

    #[test]
    fn what_is_no_name_and_no_configuration_says_nothing() {
        let long = "x".repeat(254);
        for value in ["", "a b", "a\nb", "../b", "a=b", &long] {
            let line = format!("INSTANCETYPE_KUBEVIRT_IO_DEFAULT_PREFERENCE={value}");
            let defaults = ImageDefaults::of_variables(&[line]);
            assert_eq!(defaults, ImageDefaults::default(), "{value:?}");
        }
        for config in ["{}", r#"{"config": null}"#, r#"{"config": {"Env": null}}"#] {
            let defaults = ImageDefaults::of_config(config.as_bytes()).unwrap();
            assert_eq!(defaults, ImageDefaults::default(), "{config}");
        }
        ImageDefaults::of_config(b"[1]").unwrap_err();
    }
}
