//! Debian trees by mmdebstrap, as ext4 images.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::kernel::StockKernel;
use super::{ext4, recipe_file};
use crate::{cache, process, tools};

/// Which Debian.
pub(super) const SUITE: &str = "bookworm";

/// Of a key: changes when this file makes another tree of the same recipe.
pub(super) const VERSION: &[u8] = b"layout 1";

/// A recipe of a root file system with the modules of a kernel.
pub(super) struct Recipe {
    /// Of the image in the cache.
    pub(super) name: &'static str,
    /// Separated by commas.
    pub(super) packages: &'static str,
    /// In the clone: holds the script `setup`, which is given the tree and the kernel's release.
    pub(super) directory: &'static str,
    /// Of `directory`, besides `setup`: what the image depends on.
    pub(super) files: &'static [&'static str],
    /// Virtual size; the file is sparse.
    pub(super) mib: u64,
}

impl Recipe {
    /// The ext4 image. It is shared by everybody, so nobody writes to it.
    pub(super) fn image(&self, kernel: &StockKernel) -> anyhow::Result<PathBuf> {
        let mut parts = vec![
            SUITE.as_bytes().to_vec(),
            self.packages.as_bytes().to_vec(),
            kernel.directory.as_os_str().as_encoded_bytes().to_vec(),
            VERSION.to_vec(),
            recipe_file(&format!("{}/setup", self.directory))?,
        ];
        for file in self.files {
            parts.push(recipe_file(&format!("{}/{file}", self.directory))?);
        }
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let directory = cache::directory(self.name, &cache::key(&parts), |partial| {
            tools::ensure(tools::IMAGES)?;
            eprintln!("making {} by mmdebstrap; about a minute", self.name);
            self.build(partial, kernel)
        })?;
        Ok(directory.join("root.ext4"))
    }

    fn build(&self, partial: &Path, kernel: &StockKernel) -> anyhow::Result<()> {
        let tree = partial.join("tree");
        self::tree(self.packages, &tree)?;
        let modules = tree.join("lib/modules").join(&kernel.release);
        fs::create_dir_all(tree.join("lib/modules"))?;
        process::output(
            Command::new("cp")
                .arg("-a")
                .arg(kernel.modules())
                .arg(&modules),
        )?;
        let setup = crate::artifacts::workspace()?
            .join("guest-images")
            .join(self.directory)
            .join("setup");
        process::output(
            Command::new("sh")
                .arg(setup)
                .arg(&tree)
                .arg(&kernel.release),
        )?;
        ext4::make(&partial.join("root.ext4"), self.mib, Some(&tree))?;
        fs::remove_dir_all(&tree)?;
        Ok(())
    }
}

/// Makes a tree of `packages`, separated by commas, and of all that they need.
pub(super) fn tree(packages: &str, tree: &Path) -> anyhow::Result<()> {
    process::output(
        Command::new("mmdebstrap")
            .args(["--variant=minbase", "--mode=auto", "--quiet"])
            .arg(format!("--include={packages}"))
            .args([
                "--dpkgopt=path-exclude=/usr/share/doc/*",
                "--dpkgopt=path-exclude=/usr/share/locale/*",
            ])
            .args([
                "--dpkgopt=path-exclude=/usr/share/man/*",
                "--aptopt=Acquire::Languages none",
            ])
            .arg(SUITE)
            .arg(tree),
    )
    .map(drop)
}
