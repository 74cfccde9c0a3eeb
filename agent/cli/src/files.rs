//! Manifests that were named on the command line.

use std::io::Read;
use std::path::{Path, PathBuf};

use proto_node::manifest::{self, Document, MAX_MANIFEST_BYTES};
use proto_node::{DecodeError, Violation};

use crate::failure::{Failure, file_error, invalid_text};

/// Names standard input.
const STDIN: &str = "-";

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
    for file in list(filenames, false)? {
        documents.extend(load(&file)?);
    }
    if documents.is_empty() {
        return Err(Failure::refused("no objects passed to apply"));
    }
    Ok(documents)
}

/// The files that names stand for: those of a directory in its place.
pub fn list(filenames: &[PathBuf], recursive: bool) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for filename in filenames {
        if filename.as_os_str() != STDIN && filename.is_dir() {
            files.extend(manifests_of(filename, recursive)?);
        } else {
            files.push(filename.clone());
        }
    }
    Ok(files)
}

/// Reads every document of a file or, for `-`, of standard input.
pub fn load(file: &Path) -> Result<Vec<Sourced>, Failure> {
    if file.as_os_str() == STDIN {
        let name = "standard input";
        return parse(name, &slurp(std::io::stdin().lock(), name)?);
    }
    let name = file.display().to_string();
    let open = std::fs::File::open(file).map_err(|error| {
        if error.kind() == std::io::ErrorKind::NotFound {
            Failure::refused(format!("the path {name:?} does not exist"))
        } else {
            Failure::refused(format!("{name}: {}", file_error(&error)))
        }
    })?;
    parse(&name, &slurp(open, &name)?)
}

/// The manifests of a directory by name: `.yaml`, `.yml` and `.json`; those below it only when that is
/// asked for, and never behind a symbolic link, which may lead back.
fn manifests_of(dir: &Path, recursive: bool) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error: std::io::Error| {
        Failure::refused(format!("{}: {}", dir.display(), file_error(&error)))
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        if recursive && entry.file_type().map_err(failed)?.is_dir() {
            files.extend(manifests_of(&path, true)?);
            continue;
        }
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

/// Reads no more than a manifest may hold, and one byte to notice more.
fn slurp(source: impl Read, name: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let most = u64::try_from(MAX_MANIFEST_BYTES).unwrap_or(u64::MAX);
    source
        .take(most.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::refused(format!("{name}: {}", file_error(&error))))?;
    if bytes.len() > MAX_MANIFEST_BYTES {
        return Err(Failure::refused(format!(
            "{name}: is longer than {MAX_MANIFEST_BYTES} bytes, the most that is read"
        )));
    }
    Ok(bytes)
}

fn parse(name: &str, bytes: &[u8]) -> Result<Vec<Sourced>, Failure> {
    let parsed =
        manifest::parse(bytes).map_err(|error| Failure::refused(format!("{name}: {error}")))?;
    let sourced = parsed.into_iter().map(|document| Sourced {
        file: name.to_owned(),
        document,
    });
    Ok(sourced.collect())
}
