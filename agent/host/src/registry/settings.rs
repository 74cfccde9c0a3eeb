//! What the operator says of registries: `registries."HOST[:PORT]"` of the configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use agent_domain::{PullCredentials, RegistryImage};

/// Name of the settings for all registries that have none of their own.
pub const EVERY_REGISTRY: &str = "*";

/// Host of Docker's registry, and the host that names of its images have.
pub(super) const DOCKER_REGISTRY: &str = "registry-1.docker.io";
pub(super) const DOCKER_IMAGES: &str = "docker.io";

/// How long a registry may take to answer, and between two pieces of what it sends.
const ANSWER: Duration = Duration::from_secs(60);

/// How long one pull may take.
const PULL: Duration = Duration::from_secs(4 * 3600);

/// What the operator says of registries: `[registries."HOST[:PORT]"]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegistrySettings {
    /// By host and port as images name them, or [`EVERY_REGISTRY`], of which the proxy and the times alone count.
    pub hosts: BTreeMap<String, RegistryHost>,
}

/// One registry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegistryHost {
    /// It speaks HTTP without TLS.
    pub insecure: bool,
    /// A file with certificates of its authorities, PEM.
    pub ca: Option<PathBuf>,
    /// `HOST[:PORT][/PREFIX]`, asked before it, in order.
    pub mirrors: Vec<String>,
    /// How it is reached; without it as [`EVERY_REGISTRY`] says.
    pub proxy: Option<RegistryProxy>,
    /// How long it, or a host that it leads to, may take to answer, and to go on with an answer; as above.
    pub answer: Option<Duration>,
    /// How long one pull from it may take; as above.
    pub pull: Option<Duration>,
}

/// How long a registry may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RegistryTimes {
    pub(super) answer: Duration,
    pub(super) pull: Duration,
}

/// How a registry is reached: `registries."HOST[:PORT]".proxy`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegistryProxy {
    /// Without a proxy.
    Direct,
    /// Over this one.
    Through {
        /// Its name or address; an IPv6 address without brackets.
        host: String,
        /// Its TCP port.
        port: u16,
    },
}

impl RegistryProxy {
    /// Reads `none` or `http://HOST:PORT`; `None`: it is neither.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text == "none" {
            return Some(Self::Direct);
        }
        let rest = text.strip_prefix("http://")?;
        let (host, port) = rest.strip_suffix('/').unwrap_or(rest).rsplit_once(':')?;
        let port = port.parse().ok().filter(|port| *port != 0)?;
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        // An IPv6 address without brackets has no port that can be split off.
        let is_sound = is_host(bare.unwrap_or(host)) && bare.is_some() == host.contains(':');
        is_sound.then(|| Self::Through {
            host: bare.unwrap_or(host).to_owned(),
            port,
        })
    }
}

/// Where an image may be.
pub(super) struct ImagePlace {
    pub(super) registry: String,
    pub(super) repository: String,
    /// It is not the registry that the image names.
    pub(super) is_mirror: bool,
}

impl RegistrySettings {
    /// The mirrors of an image's registry, and the registry, in the order in which they are asked.
    pub(super) fn places(&self, image: &RegistryImage) -> Vec<ImagePlace> {
        let host = self.hosts.get(&image.registry);
        let mirrors = host.map_or(&[][..], |host| host.mirrors.as_slice());
        let mirrors = mirrors.iter().map(|mirror| {
            let (registry, prefix) = mirror.split_once('/').unwrap_or((mirror, ""));
            let path = [prefix.trim_matches('/'), &image.repository];
            let path: Vec<&str> = path.into_iter().filter(|part| !part.is_empty()).collect();
            ImagePlace {
                registry: registry.to_owned(),
                repository: path.join("/"),
                is_mirror: true,
            }
        });
        let own = ImagePlace {
            registry: image.registry.clone(),
            repository: image.repository.clone(),
            is_mirror: false,
        };
        mirrors.chain([own]).collect()
    }

    /// User and password for each of [`Self::places`].
    pub(crate) fn passes<'a>(
        &self,
        image: &RegistryImage,
        credentials: &'a PullCredentials,
    ) -> Vec<Option<&'a (String, String)>> {
        let places = self.places(image).into_iter();
        places
            .map(|place| credentials.of(&place.registry, &place.repository))
            .collect()
    }

    /// How long a registry, or a mirror, may take, by its name in the configuration.
    pub(super) fn times(&self, name: &str) -> RegistryTimes {
        let own = [self.hosts.get(name), self.hosts.get(EVERY_REGISTRY)];
        let first =
            |of: fn(&RegistryHost) -> Option<Duration>| own.into_iter().flatten().find_map(of);
        RegistryTimes {
            answer: first(|host| host.answer).unwrap_or(ANSWER),
            pull: first(|host| host.pull).unwrap_or(PULL),
        }
    }

    /// The proxy for a host, as images name it; host and port of the proxy.
    pub(super) fn proxy(&self, host: &str, port: u16) -> Option<(&str, u16)> {
        // Docker's registry has another name than its images.
        let host = match host {
            DOCKER_REGISTRY => DOCKER_IMAGES,
            host => host,
        };
        let own = self.hosts.get(&format!("{host}:{port}"));
        let own = own.or_else(|| {
            let has_own_port = [80, 443].contains(&port);
            self.hosts.get(host).filter(|_| has_own_port)
        });
        let proxy = own.and_then(|own| own.proxy.as_ref()).or_else(|| {
            let every = self.hosts.get(EVERY_REGISTRY)?;
            every.proxy.as_ref()
        });
        match proxy? {
            RegistryProxy::Direct => None,
            RegistryProxy::Through { host, port } => Some((host, *port)),
        }
    }
}

/// Whether this may be a host's name or address: it goes into a line of a request.
pub(super) fn is_host(host: &str) -> bool {
    let is_sound = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte);
    (1..=253).contains(&host.len()) && host.bytes().all(is_sound)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(host: &str, port: u16) -> RegistryProxy {
        let host = host.to_owned();
        RegistryProxy::Through { host, port }
    }

    #[test]
    fn a_proxy_is_a_host_with_a_port() {
        let parse = RegistryProxy::parse;
        assert_eq!(parse("none"), Some(RegistryProxy::Direct));
        let named = Some(through("proxy.example", 3128));
        assert_eq!(parse("http://proxy.example:3128"), named);
        assert_eq!(parse("http://proxy.example:3128/"), named);
        assert_eq!(
            parse("http://[fd00::1]:3128"),
            Some(through("fd00::1", 3128))
        );
        for other in [
            "",
            "proxy.example:3128",
            "https://proxy.example:3128",
            "http://proxy.example",
            "http://proxy.example:0",
            "http://user:secret@proxy.example:3128",
            "http://fd00::1:3128",
            "http://a/b:3128",
            "http://:3128",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn each_mirror_gets_what_the_secret_says_of_it_and_nothing_that_is_for_the_registry() {
        let host = RegistryHost {
            mirrors: vec![
                String::from("mirror.example/cache"),
                String::from("open.example"),
            ],
            ..RegistryHost::default()
        };
        let settings = RegistrySettings {
            hosts: BTreeMap::from([(String::from("r.example"), host)]),
        };
        let image = RegistryImage {
            registry: String::from("r.example"),
            repository: String::from("vm/disk"),
            reference: String::from("1"),
        };
        let who = |user: &str| (user.to_owned(), String::from("p"));
        let credentials = PullCredentials::new([
            (String::from("r.example"), who("own")),
            (String::from("mirror.example/cache/vm"), who("mirror")),
        ]);
        let passes = settings.passes(&image, &credentials);
        let users = passes
            .into_iter()
            .map(|pass| pass.map(|(user, _)| user.as_str()));
        let expected = [Some("mirror"), None, Some("own")];
        assert_eq!(users.collect::<Vec<_>>(), expected);
        let places = settings.places(&image);
        let places = places
            .iter()
            .map(|it| (it.registry.as_str(), it.repository.as_str()));
        let expected = [
            ("mirror.example", "cache/vm/disk"),
            ("open.example", "vm/disk"),
            ("r.example", "vm/disk"),
        ];
        assert_eq!(places.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_registry_without_a_proxy_of_its_own_has_that_of_all() {
        let host = |proxy| RegistryHost {
            proxy,
            ..RegistryHost::default()
        };
        let hosts = [
            (EVERY_REGISTRY, host(Some(through("proxy", 1)))),
            ("near.example:5000", host(Some(RegistryProxy::Direct))),
            ("other.example", host(Some(through("second", 2)))),
            ("silent.example", host(None)),
            ("docker.io", host(Some(through("third", 3)))),
        ];
        let settings = RegistrySettings {
            hosts: hosts.map(|(name, host)| (name.to_owned(), host)).into(),
        };
        assert_eq!(settings.proxy("near.example", 5000), None);
        assert_eq!(settings.proxy("near.example", 443), Some(("proxy", 1)));
        assert_eq!(settings.proxy("other.example", 443), Some(("second", 2)));
        assert_eq!(settings.proxy("other.example", 5000), Some(("proxy", 1)));
        assert_eq!(settings.proxy("silent.example", 443), Some(("proxy", 1)));
        let docker = settings.proxy("registry-1.docker.io", 443);
        assert_eq!(docker, Some(("third", 3)));
        assert_eq!(RegistrySettings::default().proxy("x", 443), None);
    }

    #[test]
    fn a_registry_has_its_own_times_before_those_of_all() {
        let seconds = Duration::from_secs;
        let host = |answer: Option<u64>, pull: Option<u64>| RegistryHost {
            answer: answer.map(seconds),
            pull: pull.map(seconds),
            ..RegistryHost::default()
        };
        let settings = |hosts: &[(&str, RegistryHost)]| RegistrySettings {
            hosts: hosts
                .iter()
                .map(|(name, host)| ((*name).to_owned(), host.clone()))
                .collect(),
        };
        let every = settings(&[
            ("*", host(Some(5), Some(50))),
            ("far.example", host(Some(7), None)),
        ]);
        let times = |answer, pull| RegistryTimes {
            answer: seconds(answer),
            pull: seconds(pull),
        };
        assert_eq!(every.times("far.example"), times(7, 50));
        assert_eq!(every.times("other.example"), times(5, 50));
        let one = settings(&[("far.example", host(None, Some(9)))]);
        assert_eq!(one.times("far.example"), times(60, 9));
        assert_eq!(one.times("other.example"), times(60, 14400));
    }
}
