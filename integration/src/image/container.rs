//! OCI image layouts with disks, written file by file.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::process;

/// Writes a layout to `layout` whose one layer has what is in `tree`.
///
/// # Errors
/// When a file cannot be read or written.
pub fn layout(tree: &Path, layout: &Path) -> anyhow::Result<()> {
    let layer = layout.with_extension("layer");
    let mut command = Command::new("tar");
    command.args(["--owner=107", "--group=107", "-C"]);
    process::output(command.arg(tree).arg("-cf").arg(&layer).arg("."))?;
    let data = fs::read(&layer).with_context(|| layer.display().to_string())?;
    fs::remove_file(&layer)?;
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
    let layer = blob(&data, "layer.v1.tar")?;
    let config = json!({
        "architecture": "amd64",
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    });
    let config = blob(config.to_string().as_bytes(), "config.v1+json")?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [layer],
    });
    let manifest = blob(manifest.to_string().as_bytes(), "manifest.v1+json")?;
    let index = json!({"schemaVersion": 2, "manifests": [manifest]});
    fs::write(layout.join("index.json"), index.to_string())?;
    let version = json!({"imageLayoutVersion": "1.0.0"});
    fs::write(layout.join("oci-layout"), version.to_string())?;
    Ok(())
}
