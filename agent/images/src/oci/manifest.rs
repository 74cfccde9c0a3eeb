//! From the layout's index to the layers of one image.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::blob::{Descriptor, Digest, digest_of, read_document};
use super::layout::{LayoutDir, OciError, OciLimits};

const INDEX: &str = "index.json";
const REF_NAME: &str = "org.opencontainers.image.ref.name";
const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// An index may list indexes; real ones do so once.
const MAX_NESTING: usize = 4;

/// What names are shown when the one asked for is not there.
const MAX_NAMES: usize = 16;

/// The layers of one image. Whoever reads the layers gets it from the one who has read the layout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageManifest {
    digest: Digest,
    layers: Vec<Descriptor>,
    config: Option<Box<Descriptor>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireDescriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    size: u64,
    #[serde(default)]
    annotations: std::collections::BTreeMap<String, String>,
    platform: Option<WirePlatform>,
}

#[derive(Deserialize)]
struct WirePlatform {
    architecture: String,
    os: String,
}

#[derive(Deserialize)]
struct WireIndex {
    manifests: Vec<WireDescriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMediaType {
    #[serde(default)]
    media_type: String,
}

#[derive(Deserialize)]
struct WireManifest {
    layers: Vec<WireDescriptor>,
    /// Of artifacts it may have any form.
    #[serde(default)]
    config: serde_json::Value,
}

impl ImageManifest {
    /// Finds an image in a layout: by its name (`org.opencontainers.image.ref.name`), or the only
    /// one there is. Of an image for several architectures it is the one for `architecture`, in
    /// Go's words, such as `amd64`.
    ///
    /// # Errors
    /// See [`OciError`].
    pub fn open<D: LayoutDir>(
        dir: &D,
        reference: Option<&str>,
        architecture: &str,
        limits: OciLimits,
    ) -> Result<Self, OciError> {
        let index = read_index(dir, limits)?;
        let mut chosen = choose(index.manifests, reference)?;
        for _ in 0..MAX_NESTING {
            let file = chosen.digest.text();
            match chosen.media_type.as_str() {
                OCI_INDEX | DOCKER_INDEX => {
                    let bytes = read_document(dir, &chosen, limits.document_bytes)?;
                    let index: WireIndex = parse(&file, &bytes)?;
                    chosen = for_architecture(&file, index.manifests, architecture)?;
                }
                OCI_MANIFEST | DOCKER_MANIFEST => {
                    let bytes = read_document(dir, &chosen, limits.document_bytes)?;
                    return Self::from_wire(chosen.digest, parse(&file, &bytes)?, limits);
                }
                other => return Err(OciError::Unsupported(format!("media type {other:?}"))),
            }
        }
        Err(OciError::Unsupported(
            "an index nested this deep".to_owned(),
        ))
    }

    /// The digest of the manifest, `sha256:...`: the same digest, the same files.
    #[must_use]
    pub fn digest(&self) -> String {
        self.digest.text()
    }

    /// Where the layers are in the layout, the lowest first.
    pub fn layer_paths(&self) -> impl Iterator<Item = PathBuf> + '_ {
        self.layers.iter().map(|layer| layer.digest.path())
    }

    /// The configuration of the image, verified; `None` where there is none that can be read: the layers may be sound.
    #[must_use]
    pub fn config<D: LayoutDir>(&self, dir: &D, limits: OciLimits) -> Option<Vec<u8>> {
        read_document(dir, self.config.as_deref()?, limits.document_bytes).ok()
    }

    /// Lowest first.
    pub(super) fn layers(&self) -> &[Descriptor] {
        &self.layers
    }

    /// The image that the manifest of a directory describes, as skopeo's `dir:` has it.
    ///
    /// # Errors
    /// See [`OciError`].
    pub fn of_document(bytes: &[u8], limits: OciLimits) -> Result<Self, OciError> {
        const FILE: &str = "manifest.json";
        let media: WireMediaType = parse(FILE, bytes)?;
        if ![OCI_MANIFEST, DOCKER_MANIFEST, ""].contains(&media.media_type.as_str()) {
            let what = format!("media type {:?}", media.media_type);
            return Err(OciError::Unsupported(what));
        }
        Self::from_wire(digest_of(bytes), parse(FILE, bytes)?, limits)
    }

    /// An image of these layers, the lowest first.
    pub(super) fn of_layers(
        digest: Digest,
        layers: Vec<Descriptor>,
        limits: OciLimits,
    ) -> Result<Self, OciError> {
        if layers.len() > limits.layers {
            return Err(OciError::TooLarge {
                what: "the number of layers".to_owned(),
                limit: limits.layers as u64,
            });
        }
        if let Some(layer) = layers.iter().find(|layer| layer.size > limits.layer_bytes) {
            return Err(OciError::TooLarge {
                what: format!("the layer {}", layer.digest.text()),
                limit: limits.layer_bytes,
            });
        }
        Ok(Self {
            digest,
            layers,
            config: None,
        })
    }

    fn from_wire(
        digest: Digest,
        manifest: WireManifest,
        limits: OciLimits,
    ) -> Result<Self, OciError> {
        let file = digest.text();
        let config = serde_json::from_value(manifest.config).ok();
        let config = config.and_then(|config| descriptor(&file, config).ok().map(Box::new));
        let layers = manifest
            .layers
            .into_iter()
            .map(|layer| descriptor(&file, layer))
            .collect::<Result<Vec<_>, _>>()?;
        let manifest = Self::of_layers(digest, layers, limits)?;
        Ok(Self { config, ..manifest })
    }
}

fn read_index<D: LayoutDir>(dir: &D, limits: OciLimits) -> Result<WireIndex, OciError> {
    let read_error = |source| OciError::Read {
        file: INDEX.to_owned(),
        source,
    };
    let file = dir.open(Path::new(INDEX)).map_err(read_error)?;
    let mut bytes = Vec::new();
    file.take(limits.document_bytes + 1)
        .read_to_end(&mut bytes)
        .map_err(read_error)?;
    if bytes.len() as u64 > limits.document_bytes {
        return Err(OciError::TooLarge {
            what: INDEX.to_owned(),
            limit: limits.document_bytes,
        });
    }
    parse(INDEX, &bytes)
}

fn choose(manifests: Vec<WireDescriptor>, wanted: Option<&str>) -> Result<Descriptor, OciError> {
    let names: Vec<String> = manifests
        .iter()
        .filter_map(|manifest| manifest.annotations.get(REF_NAME))
        .take(MAX_NAMES)
        .map(|name| format!("{name:?}"))
        .collect();
    let held = match (manifests.len(), names.is_empty()) {
        (0, _) => "none".to_owned(),
        (count, true) => format!("{count} without a name"),
        (_, false) => names.join(", "),
    };
    let mut fitting = manifests.into_iter().filter(|manifest| {
        wanted
            .is_none_or(|name| manifest.annotations.get(REF_NAME).map(String::as_str) == Some(name))
    });
    let no_such_image = |wanted: String| OciError::NoSuchImage { wanted, held };
    match (fitting.next(), fitting.next(), wanted) {
        (Some(_), Some(_), None) => Err(no_such_image("chosen by name (oci:PATH:NAME)".to_owned())),
        (Some(manifest), _, _) => descriptor(INDEX, manifest),
        (None, _, Some(name)) => Err(no_such_image(format!("named {name:?}"))),
        (None, _, None) => Err(no_such_image("at all".to_owned())),
    }
}

fn for_architecture(
    file: &str,
    manifests: Vec<WireDescriptor>,
    architecture: &str,
) -> Result<Descriptor, OciError> {
    let held: Vec<String> = manifests
        .iter()
        .filter_map(|manifest| manifest.platform.as_ref())
        .take(MAX_NAMES)
        .map(|platform| format!("{:?}", platform.architecture))
        .collect();
    let fits = |manifest: &WireDescriptor| {
        manifest
            .platform
            .as_ref()
            .is_some_and(|platform| platform.os == "linux" && platform.architecture == architecture)
    };
    let only = manifests.len() == 1 && manifests.iter().all(|manifest| manifest.platform.is_none());
    manifests
        .into_iter()
        .find(|manifest| only || fits(manifest))
        .ok_or_else(|| OciError::NoSuchImage {
            wanted: format!("for linux and {architecture:?}"),
            held: held.join(", "),
        })
        .and_then(|manifest| descriptor(file, manifest))
}

fn descriptor(file: &str, wire: WireDescriptor) -> Result<Descriptor, OciError> {
    let digest = Digest::parse(&wire.digest).ok_or_else(|| OciError::Malformed {
        file: file.to_owned(),
        what: format!("{:?} is no digest by SHA-256 or SHA-512", wire.digest),
    })?;
    Ok(Descriptor {
        media_type: wire.media_type,
        digest,
        size: wire.size,
    })
}

pub(super) fn parse<'a, T: Deserialize<'a>>(file: &str, bytes: &'a [u8]) -> Result<T, OciError> {
    serde_json::from_slice(bytes).map_err(|error| OciError::Malformed {
        file: file.to_owned(),
        what: error.to_string(),
    })
}
