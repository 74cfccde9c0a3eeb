//! The one file of a directory of an image, whatever it is called.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::blob::Descriptor;
use super::layer::{Entry, Layers, whiteout};
use super::layout::{LayoutDir, OciError};

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

/// The path of the only entry of `directory`. `layers` is lowest first.
pub(super) fn only_file_in<D: LayoutDir>(
    reader: &Layers<'_, D>,
    layers: &[Descriptor],
    directory: &Path,
) -> Result<PathBuf, OciError> {
    let mut names: BTreeMap<OsString, ()> = BTreeMap::new();
    for layer in layers {
        let mut change = Change::default();
        reader.walk(layer, &mut |entry, _: &mut dyn Read| {
            change.note(directory, entry)
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
        (Some((name, ())), 0) => Ok(directory.join(name)),
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
