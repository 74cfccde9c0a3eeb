//! File systems that a power cut left, looked at without mounting them.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use crate::process;
use crate::volatile_disk::Content;

/// Writes the ext4 file system `content` of so many bytes to the file `disk`, its journal replayed.
///
/// # Errors
/// When it cannot be mended.
pub(super) fn replay(content: &Content, disk: &Path, bytes: u64) -> anyhow::Result<()> {
    content.to_file(disk, bytes)?;
    let checked = Command::new("/sbin/e2fsck")
        .arg("-fy")
        .arg(disk)
        .output()
        .context("/sbin/e2fsck")?;
    // 1: it has mended something, as it does whenever it replays a journal.
    ensure!(
        matches!(checked.status.code(), Some(0 | 1)),
        "e2fsck: {}{}",
        String::from_utf8_lossy(&checked.stdout),
        String::from_utf8_lossy(&checked.stderr)
    );
    Ok(())
}

/// Carries out a command of debugfs on such a file.
///
/// # Errors
/// When debugfs cannot. That there is no such file is none.
pub(super) fn debugfs(disk: &Path, command: &str) -> anyhow::Result<()> {
    process::output(
        Command::new("/sbin/debugfs")
            .args(["-R", command])
            .arg(disk),
    )
    .map(drop)
}
