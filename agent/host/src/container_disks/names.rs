//! Which manifest a name of a registry meant when it was asked last, and which places had which images whole.

use std::fs;
use std::io;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use crate::image_defaults::ImageDefaults;
use crate::layout::{absent_is_none, ensure_private_dir};

/// Longest file that is one of these.
const MAX_BYTES: u64 = 4096;

/// A directory with a file for each name: a line with a digest, and one with what people call the image, if they do. What an image
/// says of machines is in lines after that, in a file of its own.
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
        self.write(name, &format!("{digest}\n{called}"))
    }

    /// Notes what an image says of machines, if it does: one whose layers were not read again has said it before.
    pub(super) fn note_defaults(&self, digest: &str, defaults: &ImageDefaults) -> io::Result<()> {
        let lines = defaults.variables();
        if lines.is_empty() {
            return Ok(());
        }
        self.write(
            &defaults_of(digest),
            &format!("{digest}\n\n{}", lines.join("\n")),
        )
    }

    /// What an image says of machines.
    pub(super) fn defaults(&self, digest: &str) -> io::Result<ImageDefaults> {
        let text = absent_is_none(fs::read_to_string(self.file(&defaults_of(digest))))?;
        let lines: Vec<&str> = text.iter().flat_map(|text| text.lines().skip(2)).collect();
        Ok(ImageDefaults::of_variables(&lines))
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        ensure_private_dir(&self.0)?;
        let file = self.file(name);
        let draft = file.with_extension("new");
        fs::write(&draft, text)?;
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

/// Name of the note on what an image says of machines.
fn defaults_of(digest: &str) -> String {
    format!("{digest}\ndefaults")
}

fn parse(text: &str) -> Option<(String, String)> {
    let (digest, rest) = text.split_once('\n').unwrap_or((text, ""));
    let called = rest.lines().next().unwrap_or("");
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
        let defaults = ImageDefaults {
            preference: String::from("fedora"),
            ..ImageDefaults::default()
        };
        names.note_defaults(&digest, &defaults).unwrap();
        // Somebody else pulls it, and its layers are not read again.
        names
            .note_defaults(&digest, &ImageDefaults::default())
            .unwrap();
        assert_eq!(names.defaults(&digest).unwrap(), defaults);
        assert_eq!(names.called().unwrap(), called, "it is no name");
        // What says nothing goes, and what is said of images that are gone.
        let gone = format!("sha256:{}", "b".repeat(64));
        names.note_defaults(&gone, &defaults).unwrap();
        names.note("z", &gone, "registry.example/z:1").unwrap();
        names.prune(|kept| kept == digest).unwrap();
        assert_eq!(names.defaults(&gone).unwrap(), ImageDefaults::default());
        assert_eq!(names.defaults(&digest).unwrap(), defaults);
        assert_eq!(names.digest("x").unwrap(), Some(digest));
        assert!(!names.file("y").exists() && !names.file("z").exists());
        Names(directory.path().join("absent"))
            .prune(|_| false)
            .unwrap();
    }
}
