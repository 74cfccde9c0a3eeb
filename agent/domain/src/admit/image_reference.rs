//! Names of images in registries, as the reference implementation of distribution reads them.

use crate::vmi::RegistryImage;

const DOCKER: &str = "docker.io";
const MAX_NAME_BYTES: usize = 255;
const MAX_TAG_BYTES: usize = 128;

/// Reads `[docker://][REGISTRY/]REPOSITORY[:TAG][@DIGEST]`.
pub(super) fn parse(text: &str) -> Result<RegistryImage, &'static str> {
    let plain = text.strip_prefix("docker://").unwrap_or(text);
    let (named, digest) = match plain.split_once('@') {
        Some((named, digest)) if is_digest(digest) => (named, Some(digest)),
        Some(_) => return Err("a digest is \"sha256:\" and 64 hexadecimal digits"),
        None => (plain, None),
    };
    // A colon before the last slash belongs to the registry's port.
    let slash = named.rfind('/').map_or(0, |at| at + 1);
    let (name, tag) = match named.get(slash..).and_then(|last| last.find(':')) {
        Some(colon) => {
            let (name, tag) = named.split_at(slash + colon);
            (name, tag.get(1..))
        }
        None => (named, None),
    };
    if tag.is_some_and(|tag| !is_tag(tag)) {
        return Err(
            "a tag has 1 to 128 letters, digits, '_', '.' and '-', and begins with none of the last two",
        );
    }
    let (registry, repository) = match name.split_once('/') {
        Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (first, rest),
        _ => (DOCKER, name),
    };
    if !is_registry(registry) {
        return Err("the registry is no host with or without a port");
    }
    let is_short = registry == DOCKER && !repository.contains('/');
    if name.len() > MAX_NAME_BYTES || !repository.split('/').all(is_component) {
        return Err(
            "a repository has parts of lower case letters and digits, with '.', '_' or '-' between them, and at most 255 bytes",
        );
    }
    Ok(RegistryImage {
        registry: registry.to_owned(),
        repository: if is_short {
            format!("library/{repository}")
        } else {
            repository.to_owned()
        },
        reference: digest.or(tag).unwrap_or("latest").to_owned(),
    })
}

/// Whether text names a registry: `HOST[:PORT]`.
#[must_use]
pub fn is_registry(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !text.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
    let bracketed = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let is_host = match bracketed {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !host.is_empty()
                && host.bytes().all(plain)
                && !host.starts_with(['.', '-'])
                && !host.ends_with(['.', '-'])
        }
    };
    is_host && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}

/// Whether text names a place of repositories: `HOST[:PORT][/PREFIX]`.
#[must_use]
pub fn is_mirror(text: &str) -> bool {
    let mut parts = text.split('/');
    parts.next().is_some_and(is_registry) && parts.all(is_component)
}

/// The pull policy of an image of a registry for which none is given; nothing when the text names none.
pub(crate) fn default_pull_policy(image: &str) -> Option<&'static str> {
    parse(image)
        .ok()
        .map(|image| pull_policy(is_latest(&image)))
}

/// The pull policy where none is given.
pub(super) const fn pull_policy(is_latest: bool) -> &'static str {
    if is_latest { "Always" } else { "IfNotPresent" }
}

/// Whether text names what may change: no digest, and the tag `latest` or none.
fn is_latest(image: &RegistryImage) -> bool {
    image.reference == "latest"
}

fn is_digest(text: &str) -> bool {
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.strip_prefix("sha256:")
        .is_some_and(|hex| hex.len() == 64 && hex.bytes().all(digit))
}

fn is_tag(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    (1..=MAX_TAG_BYTES).contains(&text.len())
        && !text.starts_with(['.', '-'])
        && text.bytes().all(fits)
}

fn is_component(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let fits = |byte: u8| is_letter(byte) || b"._-".contains(&byte);
    let ends = [text.bytes().next(), text.bytes().last()];
    text.bytes().all(fits) && ends.into_iter().all(|end| end.is_some_and(is_letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_docker_reads_them() {
        let hex = "a".repeat(64);
        let by_digest = format!("registry.example/a@sha256:{hex}");
        let digest = format!("sha256:{hex}");
        for (text, registry, repository, reference) in [
            ("cirros", "docker.io", "library/cirros", "latest"),
            ("kubevirt/fedora:1", "docker.io", "kubevirt/fedora", "1"),
            (
                "docker://registry:5000/vm/a",
                "registry:5000",
                "vm/a",
                "latest",
            ),
            ("localhost/a:b", "localhost", "a", "b"),
            ("[::1]:5000/a", "[::1]:5000", "a", "latest"),
            ("quay.io/a/b-c/d_e:v1.2", "quay.io", "a/b-c/d_e", "v1.2"),
            (by_digest.as_str(), "registry.example", "a", digest.as_str()),
        ] {
            let image = parse(text).unwrap();
            let found = (
                image.registry.as_str(),
                image.repository.as_str(),
                image.reference.as_str(),
            );
            assert_eq!(found, (registry, repository, reference), "{text}");
        }
        for text in [
            "",
            "A",
            "a:",
            "a:-",
            "a//b",
            "a@sha256:1",
            "registry.example/",
            "x.y:0/a",
            "a b",
            "../a",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
