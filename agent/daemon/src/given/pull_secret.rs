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

/// User and password for an image, by the kubelet's rules: an entry is for the images whose host it matches, label by label with `*`
/// for any, and whose path begins with its path. Of several the one with the longest path counts. `None`: the Secret says nothing of the image.
pub(super) fn credentials(
    data: &BTreeMap<String, Vec<u8>>,
    registry: &str,
    repository: &str,
) -> Result<Option<(String, String)>, String> {
    let text = data
        .get(DOCKER_CONFIG)
        .ok_or_else(|| format!("there is no key {DOCKER_CONFIG}"))?;
    let config: DockerConfig =
        serde_json::from_slice(text).map_err(|_| format!("{DOCKER_CONFIG} is malformed"))?;
    let mut entries: Vec<_> = config.auths.into_iter().collect();
    entries.sort_by_key(|(name, _)| std::cmp::Reverse(place(name)));
    let found = entries
        .into_iter()
        .find(|(name, _)| is_for(&place(name), registry, repository));
    let Some((_, auth)) = found else {
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

/// Host and path that an entry is for: without its scheme and the version of a registry's interface.
fn place(name: &str) -> (String, String) {
    let name = name
        .trim_start_matches("https://")
        .trim_start_matches("http://");
    let (host, path) = name.split_once('/').unwrap_or((name, ""));
    let host = match host {
        "index.docker.io" => "docker.io",
        host => host,
    };
    let path = ["v1/", "v2/"]
        .iter()
        .find_map(|version| path.strip_prefix(version))
        .unwrap_or(path);
    let path = path.trim_end_matches('/');
    (host.to_owned(), path.to_owned())
}

fn is_for((host, path): &(String, String), registry: &str, repository: &str) -> bool {
    let (pattern, port) = host.split_once(':').unwrap_or((host, ""));
    let (name, its_port) = registry.split_once(':').unwrap_or((registry, ""));
    let labels = |name: &str| name.split('.').map(str::to_owned).collect::<Vec<_>>();
    let (patterns, labels) = (labels(pattern), labels(name));
    let is_host = patterns.len() == labels.len()
        && patterns
            .iter()
            .zip(&labels)
            .all(|(pattern, label)| is_like(pattern, label));
    is_host && port == its_port && repository.starts_with(path.as_str())
}

/// Whether a label is what a pattern says, in which `*` stands for any characters. Each part is looked for once, from where the
/// last one ended: both texts are a stranger's.
fn is_like(pattern: &str, label: &str) -> bool {
    let Some((head, rest_of_pattern)) = pattern.split_once('*') else {
        return pattern == label;
    };
    let Some(mut rest) = label.strip_prefix(head) else {
        return false;
    };
    let (between, tail) = rest_of_pattern
        .rsplit_once('*')
        .unwrap_or(("", rest_of_pattern));
    for part in between.split('*') {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, registry: &str) -> Result<Option<(String, String)>, String> {
        let (registry, repository) = registry.split_once('/').unwrap_or((registry, "debian"));
        let data = [(DOCKER_CONFIG.to_owned(), text.as_bytes().to_vec())];
        credentials(&data.into(), registry, repository)
    }

    #[test]
    fn the_longest_path_of_a_registry_counts_and_stars_stand_for_parts_of_a_host() {
        let text = r#"{"auths": {
            "quay.io": {"username": "all", "password": "p"},
            "quay.io/a": {"username": "a", "password": "p"},
            "https://quay.io/b/": {"username": "b", "password": "p"},
            "*.registry.example": {"username": "star", "password": "p"},
            "r*y.test:5000": {"username": "port", "password": "p"},
            "a*b*c.stars": {"username": "stars", "password": "p"}
        }}"#;
        let user = |image: &str| of(text, image).unwrap().map(|(user, _)| user);
        for (image, expected) in [
            ("quay.io/a/debian", Some("a")),
            ("quay.io/b/debian", Some("b")),
            ("quay.io/c/debian", Some("all")),
            ("eu.registry.example/x", Some("star")),
            ("registry.example/x", None),
            ("a.eu.registry.example/x", None),
            ("registry.test:5000/x", Some("port")),
            ("registry.test/x", None),
            ("abcbc.stars/x", Some("stars")),
            ("abb.stars/x", None),
        ] {
            assert_eq!(user(image).as_deref(), expected, "{image}");
        }
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
        assert!(credentials(&BTreeMap::new(), "x", "y").is_err());
    }
}
