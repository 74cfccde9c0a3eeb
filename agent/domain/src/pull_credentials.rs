//! Users and passwords for registries, by the kubelet's rules.

/// What a pull secret says: an entry is for the images whose host it matches, label by label with `*` for any characters, and whose
/// path begins with its path. Of several the one with the longest path counts.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PullCredentials {
    /// Host and path, user and password; those with the longest path first.
    entries: Vec<(Place, (String, String))>,
}

/// Host and path.
type Place = (String, String);

impl PullCredentials {
    /// Of the entries of a Docker configuration: name, user and password.
    pub fn new(entries: impl IntoIterator<Item = (String, (String, String))>) -> Self {
        let entries = entries.into_iter();
        let mut entries: Vec<_> = entries.map(|(name, who)| (place(&name), who)).collect();
        entries.sort_by(|(one, _), (other, _)| other.cmp(one));
        Self { entries }
    }

    /// User and password for a repository; `None`: the secret has no entry for it.
    #[must_use]
    pub fn of(&self, registry: &str, repository: &str) -> Option<&(String, String)> {
        let mut entries = self.entries.iter();
        let found = entries.find(|(place, _)| is_for(place, registry, repository));
        found.map(|(_, who)| who)
    }
}

/// Passwords are not shown.
impl std::fmt::Debug for PullCredentials {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let places = self.entries.iter().map(|(place, _)| place);
        out.debug_list().entries(places).finish()
    }
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

    #[test]
    fn the_longest_path_of_a_registry_counts_and_stars_stand_for_parts_of_a_host() {
        let named =
            |(name, user): (&str, &str)| (name.to_owned(), (user.to_owned(), String::from("p")));
        let entries = [
            ("quay.io", "all"),
            ("quay.io/a", "a"),
            ("https://quay.io/b/", "b"),
            ("*.registry.example", "star"),
            ("r*y.test:5000", "port"),
            ("a*b*c.stars", "stars"),
            ("https://index.docker.io/v1/", "docker"),
        ];
        let credentials = PullCredentials::new(entries.map(named));
        let user = |image: &str| {
            let (registry, repository) = image.split_once('/').unwrap();
            credentials
                .of(registry, repository)
                .map(|(user, _)| user.as_str())
        };
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
            ("docker.io/library/debian", Some("docker")),
        ] {
            assert_eq!(user(image), expected, "{image}");
        }
        assert!(!format!("{credentials:?}").contains("all"));
    }
}
