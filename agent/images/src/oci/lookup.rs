//! Which entry of which layer a path of the image is.
//!
//! Layers lie on one another: an upper entry hides a lower one of the same name, a whiteout
//! (`.wh.NAME`) takes a name away, an opaque whiteout (`.wh..wh..opq`) all that is in a directory.
//! Nothing is unpacked and no index is kept: each pass asks every layer about the parts of one path.

use std::io::Read;
use std::path::{Component, Path, PathBuf};

use super::blob::Descriptor;
use super::layer::{Entry, Kind, Layers, whiteout};
use super::layout::{LayoutDir, OciError};

/// Symlinks and hard links that may follow one another.
const MAX_LINKS: usize = 16;

const OPAQUE: &str = ".wh..wh..opq";

/// A regular file in a layer.
#[derive(Debug)]
pub(super) struct Found<'a> {
    pub(super) layer: &'a Descriptor,
    /// The entry's place in the layer.
    pub(super) index: u64,
}

/// Finds the regular file at `path`. `layers` is lowest first.
pub(super) fn find<'a, D: LayoutDir>(
    reader: &Layers<'_, D>,
    layers: &'a [Descriptor],
    path: &Path,
) -> Result<Found<'a>, OciError> {
    let shown = path.display().to_string();
    let mut wanted = normalised(path);
    for _ in 0..MAX_LINKS {
        let mut search = Search::new(&wanted);
        for (number, layer) in layers.iter().enumerate().rev() {
            let mut seen = Layer::new(search.parts.len());
            reader.walk(layer, &mut |entry, _: &mut dyn Read| {
                seen.note(&search.parts, entry);
                Ok(())
            })?;
            search.lay_under(number, seen);
        }
        match search.outcome(&shown)? {
            Outcome::Found { layer, index } => {
                let layer = layers
                    .get(layer)
                    .ok_or_else(|| OciError::NotFound(shown.clone()))?;
                return Ok(Found { layer, index });
            }
            Outcome::Elsewhere(path) => wanted = path,
        }
    }
    Err(OciError::NotAFile {
        path: shown,
        what: "a chain of too many links",
    })
}

enum Outcome {
    Found { layer: usize, index: u64 },
    Elsewhere(PathBuf),
}

/// The path that is looked for, with all that leads to it: `/`, `/boot`, `/boot/vmlinuz`.
struct Search {
    parts: Vec<Part>,
}

struct Part {
    path: PathBuf,
    /// What it is, by the uppermost layer that has it.
    found: Option<(usize, u64, Kind)>,
    /// An upper layer hides what lower ones have here.
    hidden: bool,
}

/// What one layer says about each part.
struct Layer(Vec<PartState>);

#[derive(Clone, Default)]
struct PartState {
    entry: Option<(u64, Kind)>,
    removed: bool,
    opaque: bool,
}

impl Layer {
    fn new(parts: usize) -> Self {
        Self(vec![PartState::default(); parts])
    }

    fn note(&mut self, parts: &[Part], entry: &Entry) {
        let is_opaque = entry.path.file_name().is_some_and(|name| name == OPAQUE);
        let removed = whiteout(&entry.path).filter(|_| !is_opaque);
        for (part, state) in parts.iter().zip(&mut self.0) {
            if is_opaque {
                state.opaque |= entry.path.parent() == Some(&part.path);
            } else if let Some(removed) = &removed {
                state.removed |= *removed == part.path;
            } else if entry.path == part.path {
                state.entry = Some((entry.index, entry.kind.clone()));
            } else if entry.path.starts_with(&part.path) && state.entry.is_none() {
                // Directories need no entry of their own.
                state.entry = Some((entry.index, Kind::Directory));
            }
        }
    }
}

impl Search {
    fn new(path: &Path) -> Self {
        let mut paths: Vec<PathBuf> = path.ancestors().map(Path::to_owned).collect();
        paths.reverse();
        let parts = paths
            .into_iter()
            .map(|path| Part {
                path,
                found: None,
                hidden: false,
            })
            .collect();
        Self { parts }
    }

    /// Takes in the next lower layer.
    fn lay_under(&mut self, number: usize, layer: Layer) {
        let mut hides_below = false;
        for (part, state) in self.parts.iter_mut().zip(layer.0) {
            let is_directory = matches!(state.entry, Some((_, Kind::Directory)) | None);
            if !part.hidden && part.found.is_none() {
                part.found = state.entry.map(|(index, kind)| (number, index, kind));
            }
            // For the layers below this one, not for this one itself.
            part.hidden |= hides_below || state.removed;
            hides_below |= state.removed || state.opaque || !is_directory;
        }
    }

    fn outcome(self, shown: &str) -> Result<Outcome, OciError> {
        let not_found = || OciError::NotFound(shown.to_owned());
        let last = self.parts.len().saturating_sub(1);
        let target = self
            .parts
            .last()
            .map(|part| part.path.clone())
            .unwrap_or_default();
        for (place, part) in self.parts.into_iter().enumerate() {
            let rest = target.strip_prefix(&part.path).unwrap_or(Path::new(""));
            let Some((layer, index, kind)) = part.found else {
                // The root needs no entry.
                if place == 0 {
                    continue;
                }
                return Err(not_found());
            };
            match kind {
                Kind::Directory if place < last => {}
                Kind::File { .. } if place == last => return Ok(Outcome::Found { layer, index }),
                Kind::File { .. } => return Err(not_found()),
                Kind::Symlink(link) => {
                    let parent = part.path.parent().unwrap_or(Path::new(""));
                    // `join` lets an absolute link start anew, at the image's root.
                    let path = parent.join(link).join(rest);
                    return Ok(Outcome::Elsewhere(normalised(&path)));
                }
                Kind::Hardlink(path) if place == last => {
                    return Ok(Outcome::Elsewhere(normalised(&path)));
                }
                kind => {
                    return Err(OciError::NotAFile {
                        path: shown.to_owned(),
                        what: describe(&kind),
                    });
                }
            }
        }
        Err(not_found())
    }
}

fn describe(kind: &Kind) -> &'static str {
    match kind {
        Kind::Directory => "a directory",
        Kind::File { .. } => "a file",
        Kind::Symlink(_) | Kind::Hardlink(_) => "a link",
        Kind::Other(what) => what,
    }
}

/// Relative to the image's root and without `..`, which stops at the root as in chroot(2).
fn normalised(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => {
                plain.pop();
            }
            Component::RootDir => plain.clear(),
            Component::CurDir | Component::Prefix(_) => {}
        }
    }
    plain
}
