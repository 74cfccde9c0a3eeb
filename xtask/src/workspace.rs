//! Where things are: the clone and what cargo builds from it.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// The root of the clone this program was built from.
///
/// # Errors
/// When the clone is no longer where it was at build time.
pub fn root() -> anyhow::Result<PathBuf> {
    let manifest_dir = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let root = manifest_dir
        .parent()
        .map(Path::to_path_buf)
        .with_context(|| format!("{} has no parent directory", manifest_dir.display()))?;
    anyhow::ensure!(
        root.join("Cargo.toml").is_file(),
        "{} is not the workspace",
        root.display()
    );
    Ok(root)
}
