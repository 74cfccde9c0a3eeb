//! Which manifest a name of a registry meant when it was asked last.

use std::fs;
use std::io;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use crate::layout::{absent_is_none, ensure_private_dir};

/// A directory with a file for each name.
#[derive(Debug)]
pub(super) struct Names(pub(super) PathBuf);

impl Names {
    fn file(&self, name: &str) -> PathBuf {
        self.0.join(hex::encode(Sha256::digest(name)))
    }

    /// The digest of a name's manifest.
    pub(super) fn digest(&self, name: &str) -> io::Result<Option<String>> {
        let text = absent_is_none(fs::read_to_string(self.file(name)))?;
        // A power cut may leave an empty file, which says nothing.
        Ok(text.filter(|text| is_digest(text)))
    }

    pub(super) fn note(&self, name: &str, digest: &str) -> io::Result<()> {
        ensure_private_dir(&self.0)?;
        let file = self.file(name);
        let draft = file.with_extension("new");
        fs::write(&draft, digest)?;
        fs::rename(&draft, &file)
    }
}

fn is_digest(text: &str) -> bool {
    crate::child::is_digest(text)
}
