//! What a pull secret says of a registry.

use std::collections::BTreeMap;

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

/// User and password for a registry; `None`: the Secret says nothing of it.
pub(super) fn credentials(
    data: &BTreeMap<String, Vec<u8>>,
    registry: &str,
) -> Result<Option<(String, String)>, String> {
    let text = data
        .get(DOCKER_CONFIG)
        .ok_or_else(|| format!("there is no key {DOCKER_CONFIG}"))?;
    let config: DockerConfig =
        serde_json::from_slice(text).map_err(|_| format!("{DOCKER_CONFIG} is malformed"))?;
    let names = |name: &str| {
        let name = name
            .trim_start_matches("https://")
            .trim_start_matches("http://");
        let host = name.split('/').next().unwrap_or(name);
        host == registry || (registry == "docker.io" && host == "index.docker.io")
    };
    let Some((_, auth)) = config.auths.into_iter().find(|(name, _)| names(name)) else {
        return Ok(None);
    };
    if auth.auth.is_empty() {
        return Ok(Some((auth.username, auth.password)));
    }
    let malformed = || format!("{DOCKER_CONFIG}: the auth of {registry} is malformed");
    let plain = STANDARD.decode(auth.auth.trim()).map_err(|_| malformed())?;
    let plain = String::from_utf8(plain).map_err(|_| malformed())?;
    let (user, password) = plain.split_once(':').ok_or_else(malformed)?;
    Ok(Some((user.to_owned(), password.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, registry: &str) -> Result<Option<(String, String)>, String> {
        let data = [(DOCKER_CONFIG.to_owned(), text.as_bytes().to_vec())];
        credentials(&data.into(), registry)
    }

    #[test]
    fn docker_s_configuration_gives_user_and_password_of_one_registry() {
        let text = r#"{"auths": {
            "registry.example:5000": {"auth": "bWU6c2VjOnJldA=="},
            "https://index.docker.io/v1/": {"username": "a", "password": "b"}
        }}"#;
        let pair = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        assert_eq!(
            of(text, "registry.example:5000").unwrap(),
            pair("me", "sec:ret")
        );
        assert_eq!(of(text, "docker.io").unwrap(), pair("a", "b"));
        assert_eq!(of(text, "registry.example").unwrap(), None);
        assert!(of("{", "x").is_err());
        assert!(of(r#"{"auths": {"x": {"auth": "!"}}}"#, "x").is_err());
        assert!(credentials(&BTreeMap::new(), "x").is_err());
    }
}
