//! The directories and files of a volume, sorted, and their short names.

use std::collections::{BTreeMap, BTreeSet};

use super::file::{IsoError, IsoFile, MAX_NAME_BYTES};

/// A directory or a file.
pub(super) enum Node<'a> {
    Directory(usize),
    File(&'a [u8]),
}

/// A name in a directory.
pub(super) struct Entry<'a> {
    pub(super) name: String,
    /// ISO 9660's, with version number for files.
    pub(super) short: Vec<u8>,
    pub(super) node: Node<'a>,
}

/// A directory; its entries are sorted by short name.
pub(super) struct Directory<'a> {
    pub(super) parent: usize,
    pub(super) name: String,
    pub(super) short: Vec<u8>,
    pub(super) entries: Vec<Entry<'a>>,
}

/// Directories in the order of a path table: by depth, then by parent, then by name. The first is the root.
pub(super) struct Tree<'a> {
    pub(super) directories: Vec<Directory<'a>>,
}

/// What is in a directory before its place is known.
#[derive(Default)]
struct Draft<'a> {
    directories: BTreeMap<&'a str, Draft<'a>>,
    files: BTreeMap<&'a str, &'a [u8]>,
}

impl<'a> Tree<'a> {
    pub(super) fn new(files: &[IsoFile<'a>]) -> Result<Self, IsoError> {
        let mut root = Draft::default();
        for file in files {
            root.add(file)?;
        }
        let mut directories = vec![Directory {
            parent: 0,
            name: String::new(),
            short: Vec::new(),
            entries: Vec::new(),
        }];
        // Breadth first: drafts wait in the order of their directories.
        let mut drafts = vec![root];
        let mut next = 0;
        while next < drafts.len() {
            let Some(draft) = drafts.get_mut(next).map(std::mem::take) else {
                break;
            };
            let entries = draft.entries(next, &mut directories, &mut drafts);
            if let Some(directory) = directories.get_mut(next) {
                directory.entries = entries;
            }
            next += 1;
        }
        Ok(Self { directories })
    }
}

impl<'a> Draft<'a> {
    fn add(&mut self, file: &IsoFile<'a>) -> Result<(), IsoError> {
        let twice = || IsoError::Twice(file.path.to_owned());
        let (parents, name) = match file.path.rsplit_once('/') {
            Some((parents, name)) => (Some(parents), name),
            None => (None, file.path),
        };
        let mut at = self;
        for parent in parents.into_iter().flat_map(|parents| parents.split('/')) {
            check_name(parent)?;
            if at.files.contains_key(parent) {
                return Err(twice());
            }
            at = at.directories.entry(parent).or_default();
        }
        check_name(name)?;
        if at.directories.contains_key(name) || at.files.insert(name, file.data).is_some() {
            return Err(twice());
        }
        Ok(())
    }

    /// The entries of directory number `own`; its directories are appended to the lists.
    fn entries(
        self,
        own: usize,
        directories: &mut Vec<Directory<'a>>,
        drafts: &mut Vec<Draft<'a>>,
    ) -> Vec<Entry<'a>> {
        let mut taken = BTreeSet::new();
        let mut entries = Vec::new();
        let mut children = Vec::new();
        for (name, draft) in self.directories {
            children.push((short_name(name, false, &mut taken), name, draft));
        }
        children.sort_by(|a, b| a.0.cmp(&b.0));
        for (short, name, draft) in children {
            let number = directories.len();
            directories.push(Directory {
                parent: own,
                name: name.to_owned(),
                short: short.clone(),
                entries: Vec::new(),
            });
            drafts.push(draft);
            entries.push(Entry {
                name: name.to_owned(),
                short,
                node: Node::Directory(number),
            });
        }
        for (name, data) in self.files {
            entries.push(Entry {
                name: name.to_owned(),
                short: short_name(name, true, &mut taken),
                node: Node::File(data),
            });
        }
        entries.sort_by(|a, b| a.short.cmp(&b.short));
        entries
    }
}

fn check_name(name: &str) -> Result<(), IsoError> {
    let is_bad = |letter: char| letter.is_control() || "/\\:;*?".contains(letter);
    let is_special = name == "." || name == "..";
    if name.is_empty() || name.len() > MAX_NAME_BYTES || is_special || name.contains(is_bad) {
        return Err(IsoError::Name(name.to_owned()));
    }
    Ok(())
}

/// A name of ISO 9660, level 1, that is not taken: at most eight letters, and three after the dot of a file.
fn short_name(name: &str, is_file: bool, taken: &mut BTreeSet<Vec<u8>>) -> Vec<u8> {
    let plain = |text: &str, most: usize| -> String {
        let letters = text.chars().take(most).map(|letter| {
            let upper = letter.to_ascii_uppercase();
            let fits = upper.is_ascii_uppercase() || upper.is_ascii_digit();
            if fits { upper } else { '_' }
        });
        letters.collect()
    };
    let (stem, extension) = match name.rsplit_once('.') {
        Some((stem, extension)) if is_file && !stem.is_empty() => (stem, extension),
        _ => (name, ""),
    };
    let (stem, extension) = (plain(stem, 8), plain(extension, 3));
    // Names of one stem are numbered from how many there are, and not each from one again.
    let first = u32::try_from(taken.len()).unwrap_or(0).max(1);
    for number in std::iter::once(0).chain(first..) {
        let stem = match number {
            0 => stem.clone(),
            // There are at most 4096 files.
            _ => format!("{}{number:04}", stem.get(..4).unwrap_or(&stem)),
        };
        let short = if is_file {
            format!("{stem}.{extension};1")
        } else {
            stem
        };
        if taken.insert(short.clone().into_bytes()) {
            return short.into_bytes();
        }
    }
    Vec::new()
}
