//! Manifests that were named on the command line.

use std::io::Read;
use std::path::{Path, PathBuf};

use proto_node::manifest::{self, Document, MAX_MANIFEST_BYTES};
use proto_node::{DecodeError, Violation};

use crate::failure::{Failure, invalid_text};

/// One document of one file.
pub struct Sourced {
    /// The file, for messages.
    pub file: String,
    pub document: Document,
}

impl Sourced {
    /// Why the document is no object.
    pub fn decode_failure(&self) -> Option<Failure> {
        let errors = self.document.object.as_ref().err()?;
        let name = &self.document.name;
        let violations: Vec<Violation> = errors
            .iter()
            .map(|error| Violation {
                path: error.path.clone(),
                message: error.message.clone(),
            })
            .collect();
        let place = format!("{}, document at line {}", self.file, self.document.line);
        let text = if let [DecodeError { path, message }] = errors.as_slice()
            && path.is_empty()
        {
            format!("error: {place}: {message}")
        } else if name.kind.is_empty() || name.name.is_empty() {
            let mut text = format!("error: {place}:");
            for error in errors {
                text.push_str(&format!("\n* {error}"));
            }
            text
        } else {
            format!(
                "{}\n({place})",
                invalid_text(&name.kind, &name.name, &violations)
            )
        };
        Some(Failure::Refused(text))
    }
}

/// Reads every document of files, directories and standard input (`-`), in order.
pub fn read(filenames: &[PathBuf]) -> Result<Vec<Sourced>, Failure> {
    let mut documents = Vec::new();
    for filename in filenames {
        if filename.as_os_str() == "-" {
            parse(
                "standard input",
                &slurp(std::io::stdin().lock(), "standard input")?,
                &mut documents,
            )?;
        } else if filename.is_dir() {
            for file in manifests_of(filename)? {
                parse_file(&file, &mut documents)?;
            }
        } else {
            parse_file(filename, &mut documents)?;
        }
    }
    if documents.is_empty() {
        return Err(Failure::refused("no objects passed to apply"));
    }
    Ok(documents)
}

/// The manifests of a directory by name: `.yaml`, `.yml` and `.json`, not below it.
fn manifests_of(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error: std::io::Error| Failure::refused(format!("{}: {error}", dir.display()));
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let is_manifest = path.extension().is_some_and(|extension| {
            ["yaml", "yml", "json"]
                .iter()
                .any(|known| extension == *known)
        });
        if is_manifest && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn parse_file(path: &Path, documents: &mut Vec<Sourced>) -> Result<(), Failure> {
    let name = path.display().to_string();
    let file = std::fs::File::open(path).map_err(|error| {
        if error.kind() == std::io::ErrorKind::NotFound {
            Failure::refused(format!("the path {name:?} does not exist"))
        } else {
            Failure::refused(format!("{name}: {error}"))
        }
    })?;
    parse(&name, &slurp(file, &name)?, documents)
}

/// Reads no more than a manifest may hold, and one byte to notice more.
fn slurp(source: impl Read, name: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let most = u64::try_from(MAX_MANIFEST_BYTES).unwrap_or(u64::MAX);
    source
        .take(most.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::refused(format!("{name}: {error}")))?;
    if bytes.len() > MAX_MANIFEST_BYTES {
        return Err(Failure::refused(format!(
            "{name}: is longer than {MAX_MANIFEST_BYTES} bytes, the most that is read"
        )));
    }
    Ok(bytes)
}

fn parse(name: &str, bytes: &[u8], documents: &mut Vec<Sourced>) -> Result<(), Failure> {
    let parsed =
        manifest::parse(bytes).map_err(|error| Failure::refused(format!("{name}: {error}")))?;
    documents.extend(parsed.into_iter().map(|document| Sourced {
        file: name.to_owned(),
        document,
    }));
    Ok(())
}
