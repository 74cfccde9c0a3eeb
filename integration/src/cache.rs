//! What is made once and kept outside the clone: kernels, images, the nodes' directories.
//!
//! Everything can be deleted at any time and is made again.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Context;
use nix::fcntl::{Flock, FlockArg};

/// The cache directory: `KVMLET_CACHE`, else `~/.cache/kvmlet`, else `/tmp/kvmlet-cache`.
#[must_use]
pub fn root() -> PathBuf {
    if let Some(set) = std::env::var_os("KVMLET_CACHE") {
        return PathBuf::from(set);
    }
    std::env::var_os("HOME").map_or_else(
        || PathBuf::from("/tmp/kvmlet-cache"),
        |home| PathBuf::from(home).join(".cache/kvmlet"),
    )
}

/// Waits for the lock `name` and holds it until the value is dropped.
///
/// # Errors
/// When the cache directory cannot be written.
pub fn lock(name: &str) -> anyhow::Result<Flock<File>> {
    let file = lock_file(name)?;
    Flock::lock(file, FlockArg::LockExclusive)
        .map_err(|(_, errno)| anyhow::anyhow!("the lock {name} cannot be taken: {errno}"))
}

/// Takes the lock `name` if nobody holds it.
///
/// # Errors
/// When the cache directory cannot be written.
pub fn try_lock(name: &str) -> anyhow::Result<Option<Flock<File>>> {
    Ok(Flock::lock(lock_file(name)?, FlockArg::LockExclusiveNonblock).ok())
}

fn lock_file(name: &str) -> anyhow::Result<File> {
    let directory = root().join("locks");
    fs::create_dir_all(&directory)
        .with_context(|| format!("{} cannot be made", directory.display()))?;
    let path = directory.join(name);
    File::create(&path).with_context(|| format!("{} cannot be made", path.display()))
}

/// The directory `images/NAME-KEY`, filled by `build` when it is not there yet. `build` works in a
/// directory of its own that gets its final name only when `build` succeeded, so a killed build
/// leaves nothing that looks whole.
///
/// # Errors
/// When `build` fails or the cache directory cannot be written.
pub fn directory(
    name: &str,
    key: &str,
    build: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<PathBuf> {
    let images = root().join("images");
    let whole = images.join(format!("{name}-{key}"));
    let _held = lock(&format!("image-{name}"))?;
    if whole.is_dir() {
        return Ok(whole);
    }
    let partial = images.join(format!("{name}-{key}.partial"));
    if partial.exists() {
        fs::remove_dir_all(&partial)?;
    }
    fs::create_dir_all(&partial)
        .with_context(|| format!("{} cannot be made", partial.display()))?;
    build(&partial).with_context(|| format!("image {name}"))?;
    fs::rename(&partial, &whole)?;
    Ok(whole)
}

/// A short key of everything a recipe depends on.
#[must_use]
pub fn key(parts: &[&[u8]]) -> String {
    // FNV-1a, 128 bits: a key names a recipe of ours, nobody forges it.
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    let mut mix = |byte: u8| {
        hash ^= u128::from(byte);
        hash = hash.wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    };
    for part in parts {
        for byte in part.len().to_le_bytes().iter().chain(*part) {
            mix(*byte);
        }
    }
    format!("{hash:032x}").chars().take(16).collect()
}

#[cfg(test)]
mod tests {
    use super::key;

    #[test]
    fn key_depends_on_where_a_part_ends() {
        assert_ne!(key(&[b"ab", b"c"]), key(&[b"a", b"bc"]));
        assert_eq!(key(&[b"ab", b"c"]), key(&[b"ab", b"c"]));
    }
}
