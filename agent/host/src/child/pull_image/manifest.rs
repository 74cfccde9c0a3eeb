//! From a tag or digest to the manifest of one architecture.

use hyper::header;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::error::PullError;
use super::http::Client;
use super::messages::Request;
use crate::image_defaults::ImageDefaults;

const MAX_DOCUMENT_BYTES: usize = 4 << 20;
/// An index may list indexes; real ones do so once.
const MAX_NESTING: usize = 4;

const INDEXES: [&str; 2] = [
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
];
const MANIFESTS: [&str; 2] = [
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
];

/// A manifest and what it is made of.
pub(super) struct Manifest {
    pub(super) digest: String,
    pub(super) media_type: String,
    pub(super) body: Vec<u8>,
    /// Layers, each once.
    pub(super) blobs: Vec<Blob>,
    /// Digest of the configuration, if it has one.
    config: Option<String>,
}

/// A layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blob {
    /// `sha256:HEX`.
    pub(super) digest: String,
    pub(super) bytes: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    #[serde(default)]
    media_type: String,
    #[serde(default)]
    manifests: Vec<Entry>,
    #[serde(default)]
    layers: Vec<Layer>,
    config: Option<ConfigBlob>,
}

#[derive(Deserialize)]
struct ConfigBlob {
    digest: String,
}

#[derive(Deserialize)]
struct Entry {
    digest: String,
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

#[derive(Deserialize)]
struct Layer {
    digest: String,
    size: u64,
}

pub(super) async fn fetch(client: &Client<'_>, request: &Request) -> Result<Manifest, PullError> {
    let mut reference = request.reference.clone();
    for _ in 0..MAX_NESTING {
        let path = format!("/v2/{}/manifests/{reference}", request.repository);
        let accept = [INDEXES, MANIFESTS].concat().join(", ");
        let answer = client.get(&path, &[(header::ACCEPT, accept)]).await?;
        let content_type = answer.headers.get(header::CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or("").split(';').next().unwrap_or("");
        let content_type = content_type.trim().to_owned();
        let body = client.body_of(answer.body, MAX_DOCUMENT_BYTES).await?;
        let digest = format!("sha256:{}", hex::encode(Sha256::digest(&body)));
        if reference.starts_with("sha256:") && reference != digest {
            return Err(PullError::Refused(format!(
                "the registry sent a manifest {digest} for {reference}"
            )));
        }
        let document: Document = serde_json::from_slice(&body).map_err(|error| {
            PullError::Refused(format!("the manifest {digest} is malformed: {error}"))
        })?;
        // The document's own word counts, where it has one.
        let media_type = if document.media_type.is_empty() {
            content_type
        } else {
            document.media_type.clone()
        };
        if INDEXES.contains(&media_type.as_str()) {
            reference = for_architecture(&digest, document.manifests, &request.architecture)?;
            continue;
        }
        if !MANIFESTS.contains(&media_type.as_str()) {
            return Err(PullError::Refused(format!(
                "the manifest {digest} has the media type {media_type:?}, which cannot be read"
            )));
        }
        let blobs = blobs(&digest, document.layers, request)?;
        return Ok(Manifest {
            digest,
            media_type,
            body,
            blobs,
            config: document.config.map(|config| config.digest),
        });
    }
    Err(PullError::Refused(
        "an index nested this deep cannot be read".to_owned(),
    ))
}

/// What an image's configuration says of machines. Nothing else of it counts, so it is not kept.
pub(super) async fn defaults(
    client: &Client<'_>,
    request: &Request,
    manifest: &Manifest,
) -> Result<ImageDefaults, PullError> {
    // That of an artifact may be named by another algorithm, or be absent.
    let Some(digest) = manifest.config.as_ref().filter(|digest| is_digest(digest)) else {
        return Ok(ImageDefaults::default());
    };
    let path = format!("/v2/{}/blobs/{digest}", request.repository);
    let answer = client.get(&path, &[]).await?;
    let body = client.body_of(answer.body, MAX_DOCUMENT_BYTES).await?;
    defaults_of(digest, &body)
}

fn defaults_of(digest: &str, body: &[u8]) -> Result<ImageDefaults, PullError> {
    let sent = format!("sha256:{}", hex::encode(Sha256::digest(body)));
    if sent != digest {
        return Err(PullError::Refused(format!(
            "the registry sent other bytes for {digest}: their digest is {sent}"
        )));
    }
    Ok(ImageDefaults::of_any(body))
}

fn for_architecture(
    digest: &str,
    manifests: Vec<Entry>,
    architecture: &str,
) -> Result<String, PullError> {
    let only = manifests.len() == 1 && manifests.iter().all(|entry| entry.platform.is_none());
    let held: Vec<String> = manifests
        .iter()
        .filter_map(|entry| entry.platform.as_ref())
        .take(16)
        .map(|platform| format!("{:?}", platform.architecture))
        .collect();
    let fits = |entry: &Entry| {
        let platform = entry.platform.as_ref();
        platform.is_some_and(|it| it.os == "linux" && it.architecture == architecture)
    };
    let found = manifests.into_iter().find(|entry| only || fits(entry));
    let found = found.filter(|entry| is_digest(&entry.digest));
    found.map(|entry| entry.digest).ok_or_else(|| {
        PullError::Refused(format!(
            "the index {digest} holds no image for linux and {architecture:?}; it holds {}",
            held.join(", ")
        ))
    })
}

fn blobs(digest: &str, layers: Vec<Layer>, request: &Request) -> Result<Vec<Blob>, PullError> {
    let refused = |what: String| PullError::Refused(format!("the manifest {digest} {what}"));
    if layers.len() > request.max_layers {
        let most = request.max_layers;
        return Err(refused(format!(
            "has {} layers, more than {most}",
            layers.len()
        )));
    }
    let mut blobs: Vec<Blob> = Vec::new();
    for layer in layers {
        if !is_digest(&layer.digest) {
            return Err(refused(format!(
                "has a layer {:?}, which is no SHA-256",
                layer.digest
            )));
        }
        if layer.size > request.max_layer_bytes {
            let most = request.max_layer_bytes;
            return Err(refused(format!(
                "has a layer of {} bytes, more than {most}",
                layer.size
            )));
        }
        let blob = Blob {
            digest: layer.digest,
            bytes: layer.size,
        };
        if !blobs.contains(&blob) {
            blobs.push(blob);
        }
    }
    Ok(blobs)
}

/// Whether text is `sha256:` and 64 hexadecimal digits.
pub(crate) fn is_digest(text: &str) -> bool {
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.strip_prefix("sha256:")
        .is_some_and(|hex| hex.len() == 64 && hex.bytes().all(digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        Request {
            registry: "registry.example".to_owned(),
            repository: "vm/disk".to_owned(),
            reference: "1".to_owned(),
            architecture: "amd64".to_owned(),
            is_insecure: false,
            authorities: String::new(),
            credentials: None,
            max_layers: 2,
            max_layer_bytes: 100,
            reserve_bytes: 0,
            answer_milliseconds: 60_000,
        }
    }

    fn layer(digit: &str, size: u64) -> Layer {
        Layer {
            digest: format!("sha256:{}", digit.repeat(64)),
            size,
        }
    }

    #[test]
    fn layers_are_bounded_and_each_is_fetched_once() {
        let of = |layers| blobs("sha256:x", layers, &request()).map_err(|error| error.to_string());
        assert_eq!(of(vec![layer("a", 1), layer("a", 1)]).unwrap().len(), 1);
        for (layers, words) in [
            (
                vec![layer("a", 1), layer("b", 1), layer("c", 1)],
                "3 layers",
            ),
            (vec![layer("a", 101)], "more than 100"),
            (vec![layer("../../../../etc/passwd", 1)], "no SHA-256"),
        ] {
            let refused = of(layers).unwrap_err();
            assert!(refused.contains(words), "{refused}");
        }
    }

    #[test]
    fn an_image_of_another_architecture_is_refused_by_name() {
        let entry = |digit: &str, architecture: &str| Entry {
            digest: format!("sha256:{}", digit.repeat(64)),
            platform: Some(Platform {
                architecture: architecture.to_owned(),
                os: "linux".to_owned(),
            }),
        };
        let both = vec![entry("a", "arm64"), entry("b", "amd64")];
        let chosen = for_architecture("sha256:x", both, "amd64").unwrap();
        assert_eq!(chosen, format!("sha256:{}", "b".repeat(64)));
        let refused = for_architecture("sha256:x", vec![entry("a", "arm64")], "amd64");
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("it holds \"arm64\""), "{refused}");
    }

    #[test]
    fn a_configuration_has_the_digest_that_the_manifest_gives() {
        let body =
            br#"{"config": {"Env": ["INSTANCETYPE_KUBEVIRT_IO_DEFAULT_PREFERENCE=fedora"]}}"#;
        let digest = |body: &[u8]| format!("sha256:{}", hex::encode(Sha256::digest(body)));
        let defaults = defaults_of(&digest(body), body).unwrap();
        assert_eq!(defaults.preference, "fedora");
        let refused = defaults_of(&digest(b"{}"), body).unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("the registry sent other bytes"),
            "{refused}"
        );
        let odd = defaults_of(&digest(b"[]"), b"[]").unwrap();
        assert_eq!(odd, ImageDefaults::default());
    }
}
