//! ext4 file systems, made without mounting anything.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use crate::process;

/// Makes the sparse file `image` of `mib` MiB with an ext4 file system that holds the tree `from`,
/// or nothing.
///
/// # Errors
/// When mke2fs fails, for example because the tree does not fit.
pub fn make(image: &Path, mib: u64, from: Option<&Path>) -> anyhow::Result<()> {
    File::create(image)?.set_len(mib << 20)?;
    let mut command = Command::new("mke2fs");
    // Debian keeps mke2fs where not everybody looks.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command.args([
        "-q",
        "-F",
        "-t",
        "ext4",
        "-m",
        "0",
        "-E",
        "lazy_itable_init=1,lazy_journal_init=1",
    ]);
    if let Some(tree) = from {
        command.arg("-d").arg(tree);
    }
    process::output(command.arg(image)).map(drop)
}
