//! OCI images with disks: layouts, and what a registry keeps of them, written file by file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{cache, process};

/// Writes a layout to `layout` whose one layer has what is in `tree`.
///
/// # Errors
/// When a file cannot be read or written.
pub fn layout(tree: &Path, layout: &Path) -> anyhow::Result<()> {
    add_image(&[tree.to_owned()], layout, None).map(drop)
}

/// Adds an image to a layout, which is made when it is not there: a layer of each tree, the lowest first. Returns the
/// digest of its manifest.
///
/// # Errors
/// When a file cannot be read or written.
pub fn add_image(trees: &[PathBuf], layout: &Path, tag: Option<&str>) -> anyhow::Result<String> {
    let layers = trees.iter().map(|tree| packed(tree, layout));
    let layers = layers.collect::<anyhow::Result<Vec<Vec<u8>>>>()?;
    add_layers(&layers, "layer.v1.tar", layout, tag)
}

/// The same of layers that are packed already, each as the end of the media type says.
///
/// # Errors
/// When a file cannot be read or written.
pub fn add_layers(
    layers: &[Vec<u8>],
    media: &str,
    layout: &Path,
    tag: Option<&str>,
) -> anyhow::Result<String> {
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;
    let blob = |data: &[u8], media: &str| -> anyhow::Result<Value> {
        let digest: String = Sha256::digest(data)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        fs::write(blobs.join(&digest), data)?;
        Ok(json!({
            "mediaType": format!("application/vnd.oci.image.{media}"),
            "digest": format!("sha256:{digest}"),
            "size": data.len(),
        }))
    };
    let layers = layers.iter().map(|layer| blob(layer, media));
    let layers = layers.collect::<anyhow::Result<Vec<Value>>>()?;
    let diff_ids: Vec<&Value> = layers.iter().map(|layer| &layer["digest"]).collect();
    let config = json!({
        "architecture": "amd64",
        "os": "linux",
        // As KubeVirt's containerdisks have it.
        "config": {"Env": ["INSTANCETYPE_KUBEVIRT_IO_DEFAULT_PREFERENCE=fedora"]},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    });
    let config = blob(config.to_string().as_bytes(), "config.v1+json")?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": layers,
    });
    let mut manifest = blob(manifest.to_string().as_bytes(), "manifest.v1+json")?;
    let digest = format!("sha256:{}", digest(&manifest)?);
    if let Some(tag) = tag {
        manifest["annotations"] = json!({"org.opencontainers.image.ref.name": tag});
    }
    let index = layout.join("index.json");
    let mut manifests = match fs::read(&index) {
        Ok(bytes) => serde_json::from_slice::<Value>(&bytes)?["manifests"].take(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => json!([]),
        Err(error) => return Err(error).context("the index of a layout"),
    };
    let known = manifests.as_array_mut().context("an index of no images")?;
    known.push(manifest);
    let content = json!({"schemaVersion": 2, "manifests": known});
    fs::write(index, content.to_string())?;
    let version = json!({"imageLayoutVersion": "1.0.0"});
    fs::write(layout.join("oci-layout"), version.to_string())?;
    Ok(digest)
}

/// Adds a list of images of a layout, each for an architecture, as an image of its own with a tag.
///
/// # Errors
/// When a file cannot be read or written.
pub fn add_list(images: &[(&str, &str)], layout: &Path, tag: &str) -> anyhow::Result<()> {
    const INDEX: &str = "application/vnd.oci.image.index.v1+json";
    let blobs = layout.join("blobs/sha256");
    let entries = images.iter().map(|(architecture, digest)| {
        let bytes = fs::metadata(blobs.join(digest.trim_start_matches("sha256:")))?.len();
        Ok(json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": digest,
            "size": bytes,
            "platform": {"architecture": architecture, "os": "linux"},
        }))
    });
    let entries = entries.collect::<anyhow::Result<Vec<Value>>>()?;
    let list = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).to_string();
    let digest: String = Sha256::digest(&list)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    fs::write(blobs.join(&digest), &list)?;
    let path = layout.join("index.json");
    let mut index: Value = serde_json::from_slice(&fs::read(&path)?)?;
    let known = index["manifests"].as_array_mut();
    known.context("an index of no images")?.push(json!({
        "mediaType": INDEX,
        "digest": format!("sha256:{digest}"),
        "size": list.len(),
        "annotations": {"org.opencontainers.image.ref.name": tag},
    }));
    Ok(fs::write(path, index.to_string())?)
}

/// A tree as a layer, not compressed; the same bytes whenever it is packed.
fn packed(tree: &Path, layout: &Path) -> anyhow::Result<Vec<u8>> {
    let layer = layout.with_extension("layer");
    let mut command = Command::new("tar");
    command.args([
        "--owner=107",
        "--group=107",
        "--mtime=@0",
        "--sort=name",
        "-C",
    ]);
    process::output(command.arg(tree).arg("-cf").arg(&layer).arg("."))?;
    let data = fs::read(&layer).with_context(|| layer.display().to_string())?;
    fs::remove_file(&layer)?;
    Ok(data)
}

/// The directory of a registry (`storage.filesystem.rootdirectory` of Debian's `docker-registry`) that has one image,
/// `REPOSITORY:TAG`, whose one layer has `disk` in `/disk`. It is shared by everybody, so nobody writes to it.
///
/// # Errors
/// When the disk cannot be read or the cache cannot be written.
pub fn registry(disk: &Path, repository: &str, tag: &str) -> anyhow::Result<PathBuf> {
    let path = disk.as_os_str().as_encoded_bytes();
    // The cache has another path for another disk.
    let key = cache::key(&[path, repository.as_bytes(), tag.as_bytes(), b"layout 1"]);
    let made = cache::directory("registry", &key, |partial| {
        let (tree, layout) = (partial.join("tree"), partial.join("layout"));
        fs::create_dir_all(tree.join("disk"))?;
        let name = disk.file_name().context("a disk without a name")?;
        fs::copy(disk, tree.join("disk").join(name)).with_context(|| disk.display().to_string())?;
        self::layout(&tree, &layout)?;
        fs::remove_dir_all(tree)?;
        store(&layout, &partial.join("registry"), repository, tag)?;
        Ok(fs::remove_dir_all(layout)?)
    })?;
    Ok(made.join("registry"))
}

/// Moves what is in a layout to where a registry looks for it.
fn store(layout: &Path, registry: &Path, repository: &str, tag: &str) -> anyhow::Result<()> {
    let own = registry.join("docker/registry/v2");
    let blobs = layout.join("blobs/sha256");
    let of = own.join("repositories").join(repository);
    let link = |place: &str, digest: &str| -> anyhow::Result<()> {
        let directory = of.join(place);
        fs::create_dir_all(&directory)?;
        Ok(fs::write(directory.join("link"), digest)?)
    };
    let read = |path: &Path| -> anyhow::Result<Value> {
        let bytes = fs::read(path).with_context(|| path.display().to_string())?;
        Ok(serde_json::from_slice(&bytes)?)
    };
    let index = read(&layout.join("index.json"))?;
    let manifest = digest(&index["manifests"][0])?;
    let content = read(&blobs.join(manifest))?;
    for part in [&content["config"], &content["layers"][0]] {
        let part = digest(part)?;
        link(&format!("_layers/sha256/{part}"), &format!("sha256:{part}"))?;
    }
    let named = format!("sha256:{manifest}");
    for place in [
        format!("_manifests/revisions/sha256/{manifest}"),
        format!("_manifests/tags/{tag}/current"),
        format!("_manifests/tags/{tag}/index/sha256/{manifest}"),
    ] {
        link(&place, &named)?;
    }
    for blob in fs::read_dir(&blobs)? {
        let blob = blob?;
        let name = blob.file_name();
        let name = name.to_str().context("a blob that is no digest")?;
        let first = name.get(..2).context("a digest of one digit")?;
        let directory = own.join("blobs/sha256").join(first).join(name);
        fs::create_dir_all(&directory)?;
        fs::rename(blob.path(), directory.join("data"))?;
    }
    Ok(())
}

/// The digest of a descriptor, without its algorithm.
fn digest(descriptor: &Value) -> anyhow::Result<&str> {
    let digest = descriptor["digest"].as_str().unwrap_or_default();
    digest
        .strip_prefix("sha256:")
        .with_context(|| format!("no digest in {descriptor}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_finds_the_manifest_by_its_tag_and_the_disk_by_its_digest() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        fs::create_dir_all(at("tree/disk")).expect("made");
        fs::write(at("tree/disk/disk.raw"), b"a disk").expect("written");
        layout(&at("tree"), &at("layout")).expect("a layout");
        store(&at("layout"), &at("registry"), "team/debian", "12").expect("a registry");

        let own = at("registry/docker/registry/v2");
        let of = own.join("repositories/team/debian");
        let link = fs::read_to_string(of.join("_manifests/tags/12/current/link"));
        let link = link.expect("a link");
        let data = |digest: &str| {
            let digest = digest.strip_prefix("sha256:").expect("a digest");
            let first = digest.get(..2).expect("two digits");
            fs::read(own.join(format!("blobs/sha256/{first}/{digest}/data"))).expect("a blob")
        };
        let manifest: Value = serde_json::from_slice(&data(&link)).expect("JSON");
        let layer = manifest["layers"][0]["digest"].as_str().expect("a digest");
        let bare = layer.trim_start_matches("sha256:");
        let known = fs::read_to_string(of.join(format!("_layers/sha256/{bare}/link")));
        assert_eq!(known.expect("a link"), layer);
        let content = data(layer);
        assert!(content.windows(6).any(|window| window == b"a disk"));
    }
}
