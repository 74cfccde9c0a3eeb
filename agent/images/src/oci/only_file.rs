//! The one file of a directory of an image, whatever it is called.
//!
//! Nobody knows its name before all layers were read. Nearly all images have one file there, so the first that is seen is
//! written at once; what else is in the way has the file looked up anew.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::blob::Descriptor;
use super::layer::{Entry, Kind, Layers, whiteout};
use super::layout::{LayoutDir, OciError};
use super::output::Output;

/// A directory with more names than this is refused unread.
const MAX_NAMES: usize = 64;

const OPAQUE: &str = ".wh..wh..opq";

/// What one layer does to the names of the directory.
#[derive(Default)]
struct Change {
    /// Nothing of the layers below is left.
    clears: bool,
    removed: Vec<OsString>,
    added: BTreeMap<OsString, ()>,
}

/// The only entry of a directory.
pub(super) enum OnlyFile {
    /// It was written, so many bytes.
    Taken(u64),
    /// It is at this path, and something else may have been written.
    At(PathBuf),
}

/// The file that was written last.
struct Taking<'a, W> {
    directory: &'a Path,
    output: &'a mut W,
    taken: Option<(PathBuf, u64)>,
    /// Links or directories are where the file or its directory was, or may be.
    is_odd: bool,
}

impl<W: Output> Taking<'_, W> {
    /// Writes the entry's data if it is the first file of the directory, or another version of the one that was.
    fn take_entry<D: LayoutDir>(
        &mut self,
        reader: &Layers<'_, D>,
        entry: &Entry,
        data: &mut dyn Read,
    ) -> Result<(), OciError> {
        if whiteout(&entry.path).is_some() {
            // It takes the name away, which is noted elsewhere.
            return Ok(());
        }
        if self.directory.starts_with(&entry.path) {
            self.is_odd |= entry.kind != Kind::Directory;
            return Ok(());
        }
        let below = entry.path.strip_prefix(self.directory).ok();
        let Some(name) = below.and_then(|below| below.components().next()) else {
            return Ok(());
        };
        let path = self.directory.join(name);
        let belongs_to_other_namespace =
            self.taken.as_ref().is_some_and(|(taken, _)| *taken != path);
        if belongs_to_other_namespace || self.is_odd {
            return Ok(());
        }
        match entry.kind {
            Kind::File { size } if entry.path == path => {
                if self.taken.is_some() {
                    self.output.restart().map_err(OciError::Write)?;
                }
                let bytes = reader.take(&path, size, data, self.output)?;
                self.taken = Some((path, bytes));
            }
            _ => self.is_odd |= self.taken.is_some(),
        }
        Ok(())
    }
}

/// Writes the only entry of `directory` if it is a plain file, or says where it is. `layers` is lowest first.
pub(super) fn take_only_file<D: LayoutDir, W: Output>(
    reader: &Layers<'_, D>,
    layers: &[Descriptor],
    directory: &Path,
    output: &mut W,
) -> Result<OnlyFile, OciError> {
    let mut names: BTreeMap<OsString, ()> = BTreeMap::new();
    let mut taking = Taking {
        directory,
        output,
        taken: None,
        is_odd: false,
    };
    for layer in layers {
        let mut change = Change::default();
        reader.walk(layer, &mut |entry, data: &mut dyn Read| {
            change.note(directory, entry)?;
            taking.take_entry(reader, entry, data)
        })?;
        if change.clears {
            names.clear();
        }
        for name in &change.removed {
            names.remove(name);
        }
        names.append(&mut change.added);
    }
    let shown = directory.display();
    match (names.pop_first(), names.len()) {
        (None, _) => Err(OciError::NoOneFile(format!(
            "no file found in folder /{shown}, no disk present"
        ))),
        (Some((name, ())), 0) => {
            let path = directory.join(name);
            Ok(match taking.taken {
                Some((taken, bytes)) if taken == path && !taking.is_odd => OnlyFile::Taken(bytes),
                _ => OnlyFile::At(path),
            })
        }
        (Some(_), more) => Err(OciError::NoOneFile(format!(
            "more than one file found in folder /{shown}, only one disk is allowed: {} are there, and `path` can say which is meant",
            more + 1
        ))),
    }
}

impl Change {
    fn note(&mut self, directory: &Path, entry: &Entry) -> Result<(), OciError> {
        let is_opaque = entry.path.file_name().is_some_and(|name| name == OPAQUE);
        if is_opaque {
            let parent = entry.path.parent().unwrap_or(Path::new(""));
            self.clears |= directory.starts_with(parent);
            return Ok(());
        }
        if let Some(gone) = whiteout(&entry.path) {
            if directory.starts_with(&gone) {
                self.clears = true;
            } else if gone.parent() == Some(directory) {
                self.removed.extend(gone.file_name().map(Into::into));
            }
            return Ok(());
        }
        let Ok(below) = entry.path.strip_prefix(directory) else {
            return Ok(());
        };
        if let Some(name) = below.components().next() {
            self.added.insert(name.as_os_str().to_owned(), ());
        }
        if self.added.len() + self.removed.len() > MAX_NAMES {
            return Err(OciError::TooLarge {
                what: format!("the number of names in /{}", directory.display()),
                limit: MAX_NAMES as u64,
            });
        }
        Ok(())
    }
}
