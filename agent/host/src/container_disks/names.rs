//! Which manifest a name of a registry meant when it was asked last, and which places had which images whole.

use std::fs;
use std::io;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use crate::layout::{absent_is_none, ensure_private_dir};

/// Longest file that is one of these.
const MAX_BYTES: u64 = 4096;

/// A directory with a file for each name: a line with a digest, and one with what people call the image, if they do.
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
        Ok(text.and_then(|text| parse(&text).map(|(digest, _)| digest)))
    }

    pub(super) fn note(&self, name: &str, digest: &str, called: &str) -> io::Result<()> {
        ensure_private_dir(&self.0)?;
        let file = self.file(name);
        let draft = file.with_extension("new");
        fs::write(&draft, format!("{digest}\n{called}"))?;
        fs::rename(&draft, &file)
    }

    /// Removes notes on images of which nothing is kept: callers choose the names, so that notes would take space without bound.
    pub(super) fn prune(&self, is_kept: impl Fn(&str) -> bool) -> io::Result<()> {
        let Some(entries) = absent_is_none(fs::read_dir(&self.0))? else {
            return Ok(());
        };
        for entry in entries {
            let path = entry?.path();
            // One that is being written has another extension.
            if path.extension().is_some() {
                continue;
            }
            let Some(text) = absent_is_none(fs::read_to_string(&path))? else {
                continue;
            };
            if !parse(&text).is_some_and(|(digest, _)| is_kept(&digest)) {
                absent_is_none(fs::remove_file(&path))?;
            }
        }
        Ok(())
    }

    /// What people call images: digest and name of each.
    pub(super) fn called(&self) -> io::Result<Vec<(String, String)>> {
        let mut called = Vec::new();
        let Some(entries) = absent_is_none(fs::read_dir(&self.0))? else {
            return Ok(called);
        };
        for entry in entries {
            let entry = entry?;
            let path = entry.path();
            let Some(metadata) = absent_is_none(entry.metadata())? else {
                continue;
            };
            if path.extension().is_some() || metadata.len() > MAX_BYTES {
                continue;
            }
            let text = absent_is_none(fs::read_to_string(&path))?.unwrap_or_default();
            called.extend(parse(&text).filter(|(_, name)| !name.is_empty()));
        }
        Ok(called)
    }
}

fn parse(text: &str) -> Option<(String, String)> {
    let (digest, called) = text.split_once('\n').unwrap_or((text, ""));
    is_digest(digest).then(|| (digest.to_owned(), called.to_owned()))
}

/// Whether text names an algorithm that layouts may use, and as many hexadecimal digits as that has.
fn is_digest(text: &str) -> bool {
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    match text.split_once(':') {
        Some(("sha256", hex)) if hex.bytes().all(digit) => hex.len() == 64,
        Some(("sha512", hex)) if hex.bytes().all(digit) => hex.len() == 128,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_with_its_digest_and_what_a_power_cut_leaves_says_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let names = Names(directory.path().join("names"));
        let digest = format!("sha256:{}", "a".repeat(64));
        assert_eq!(names.digest("x").unwrap(), None);
        names.note("x", &digest, "registry.example/x:1").unwrap();
        names.note("proof of x", &digest, "").unwrap();
        assert_eq!(names.digest("x").unwrap(), Some(digest.clone()));
        assert_eq!(names.digest("proof of x").unwrap(), Some(digest.clone()));
        let called = [(digest.clone(), String::from("registry.example/x:1"))];
        assert_eq!(names.called().unwrap(), called);
        // As earlier releases wrote it.
        fs::write(names.file("y"), &digest).unwrap();
        assert_eq!(names.digest("y").unwrap(), Some(digest.clone()));
        fs::write(names.file("y"), "").unwrap();
        assert_eq!(names.digest("y").unwrap(), None);
        // What says nothing goes, and what is said of images that are gone.
        let gone = format!("sha256:{}", "b".repeat(64));
        names.note("z", &gone, "registry.example/z:1").unwrap();
        names.prune(|kept| kept == digest).unwrap();
        assert_eq!(names.digest("x").unwrap(), Some(digest));
        assert!(!names.file("y").exists() && !names.file("z").exists());
        Names(directory.path().join("absent"))
            .prune(|_| false)
            .unwrap();
    }
}
