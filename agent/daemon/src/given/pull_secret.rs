//! What a pull secret says of registries.

use std::collections::BTreeMap;

use agent_domain::PullCredentials;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

/// The key of a Secret of the type `kubernetes.io/dockerconfigjson`.
const DOCKER_CONFIG: &str = ".dockerconfigjson";

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, DockerAuth>,
}

#[derive(Deserialize)]
struct DockerAuth {
    #[serde(default)]
    auth: String,
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
}

/// Users and passwords of a Secret.
///
/// # Errors
/// What is malformed in it.
pub(super) fn credentials(data: &BTreeMap<String, Vec<u8>>) -> Result<PullCredentials, String> {
    let text = data
        .get(DOCKER_CONFIG)
        .ok_or_else(|| format!("there is no key {DOCKER_CONFIG}"))?;
    let config: DockerConfig =
        serde_json::from_slice(text).map_err(|_| format!("{DOCKER_CONFIG} is malformed"))?;
    let entries = config.auths.into_iter().map(|(name, auth)| {
        let who = auth.user_and_password();
        let who = who.ok_or_else(|| format!("{DOCKER_CONFIG}: the auth of {name} is malformed"))?;
        Ok((name, who))
    });
    Ok(PullCredentials::new(
        entries.collect::<Result<Vec<_>, String>>()?,
    ))
}

impl DockerAuth {
    fn user_and_password(self) -> Option<(String, String)> {
        if self.auth.is_empty() {
            return Some((self.username, self.password));
        }
        let plain = STANDARD.decode(self.auth.trim()).ok()?;
        let plain = String::from_utf8(plain).ok()?;
        let (user, password) = plain.split_once(':')?;
        Some((user.to_owned(), password.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docker_s_configuration_gives_user_and_password_of_one_registry() {
        let of = |text: &str| {
            credentials(&[(DOCKER_CONFIG.to_owned(), text.as_bytes().to_vec())].into())
        };
        let text = r#"{"auths": {
            "registry.example:5000": {"auth": "bWU6c2VjOnJldA=="},
            "https://index.docker.io/v1/": {"username": "a", "password": "b"}
        }}"#;
        let pair = |user: &str, password: &str| (user.to_owned(), password.to_owned());
        let all = of(text).unwrap();
        let registry = all.of("registry.example:5000", "debian");
        assert_eq!(registry, Some(&pair("me", "sec:ret")));
        assert_eq!(all.of("docker.io", "debian"), Some(&pair("a", "b")));
        assert_eq!(all.of("registry.example", "debian"), None);
        assert!(of("{").is_err());
        assert!(of(r#"{"auths": {"x": {"auth": "!"}}}"#).is_err());
        assert!(credentials(&BTreeMap::new()).is_err());
    }
}
