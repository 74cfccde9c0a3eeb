//! Files of blobs, until their disk is made.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Directory of the blobs below `dir`.
pub(super) fn directory(dir: &Path) -> PathBuf {
    dir.join("blobs/sha256")
}

/// A file without a name.
pub(super) fn tempfile_in(dir: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).mode(0o600);
    options.custom_flags(nix::libc::O_TMPFILE).open(dir)
}
