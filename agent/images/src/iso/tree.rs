//! The directories and files of a volume, sorted, and their short names.

use std::collections::{BTreeMap, BTreeSet};

use super::file::{IsoError, IsoFile, MAX_NAME_BYTES};

/// A directory or a file, by its number.
pub(super) enum Node {
    Directory(usize),
    File(usize),
}

/// A name in a directory.
pub(super) struct Entry<'a> {
    pub(super) name: &'a str,
    /// ISO 9660's, with version number for files.
    pub(super) short: String,
    pub(super) node: Node,
}

/// A directory; its entries are sorted by short name. The root has no name.
#[derive(Default)]
pub(super) struct Directory<'a> {
    pub(super) parent: usize,
    pub(super) name: &'a str,
    pub(super) short: String,
    pub(super) entries: Vec<Entry<'a>>,
}

/// Directories in the order of a path table: by depth, then by parent, then by name. The first is the root.
pub(super) struct Tree<'a> {
    pub(super) directories: Vec<Directory<'a>>,
    /// Contents.
    pub(super) files: Vec<&'a [u8]>,
}

/// What is in each directory, by path and name; a file has its content.
type Drafts<'a> = BTreeMap<&'a str, BTreeMap<&'a str, Option<&'a [u8]>>>;

impl<'a> Tree<'a> {
    pub(super) fn new(files: &[IsoFile<'a>]) -> Result<Self, IsoError> {
        let mut drafts = Drafts::from([("", BTreeMap::new())]);
        for file in files {
            add(&mut drafts, file)?;
        }
        let mut tree = Self {
            directories: vec![Directory::default()],
            files: Vec::new(),
        };
        // Breadth first: paths wait in the order of their directories.
        let (mut paths, mut own) = (vec![String::new()], 0);
        while let Some(path) = paths.get(own).cloned() {
            let mut taken = BTreeSet::new();
            let draft = drafts.remove(path.as_str()).unwrap_or_default();
            let mut draft = Vec::from_iter(draft);
            // Directories have the first choice of short names.
            draft.sort_by_key(|(_, data)| data.is_some());
            let mut draft: Vec<_> = draft
                .into_iter()
                .map(|(name, data)| (short_name(name, data.is_some(), &mut taken), name, data))
                .collect();
            draft.sort();
            for (short, name, data) in draft {
                let node = match data {
                    Some(data) => {
                        tree.files.push(data);
                        Node::File(tree.files.len() - 1)
                    }
                    None => {
                        paths.push(format!("{path}/{name}").trim_start_matches('/').to_owned());
                        tree.directories.push(Directory {
                            parent: own,
                            name,
                            short: short.clone(),
                            entries: Vec::new(),
                        });
                        Node::Directory(tree.directories.len() - 1)
                    }
                };
                if let Some(directory) = tree.directories.get_mut(own) {
                    directory.entries.push(Entry { name, short, node });
                }
            }
            own += 1;
        }
        Ok(tree)
    }
}

/// Adds a file and the directories on its path.
fn add<'a>(drafts: &mut Drafts<'a>, file: &IsoFile<'a>) -> Result<(), IsoError> {
    let ends = file.path.match_indices('/').map(|(at, _)| at);
    for end in ends.chain([file.path.len()]) {
        let path = file.path.get(..end).unwrap_or_default();
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        check_name(name)?;
        let data = (end == file.path.len()).then_some(file.data);
        let before = drafts.entry(directory).or_default().insert(name, data);
        // Several files may have one directory.
        if before.is_some_and(|before| before.is_some() || data.is_some()) {
            return Err(IsoError::Twice(file.path.to_owned()));
        }
        if data.is_none() {
            drafts.entry(path).or_default();
        }
    }
    Ok(())
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
fn short_name(name: &str, is_file: bool, taken: &mut BTreeSet<String>) -> String {
    let plain = |text: &str, most: usize| -> String {
        let text: String = text.to_ascii_uppercase().chars().take(most).collect();
        text.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_")
    };
    let (stem, extension) = match name.rsplit_once('.') {
        Some((stem, extension)) if is_file && !stem.is_empty() => (stem, extension),
        _ => (name, ""),
    };
    let (stem, extension) = (plain(stem, 8), plain(extension, 3));
    let full = |stem: &str| match is_file {
        true => format!("{stem}.{extension};1"),
        false => stem.to_owned(),
    };
    let mut short = full(&stem);
    // Names of one stem are numbered from how many there are, and not each from one again. There are at most 4096 files.
    let mut number = taken.len().max(1);
    while !taken.insert(short.clone()) {
        short = full(&format!("{}{number:04}", stem.get(..4).unwrap_or(&stem)));
        number += 1;
    }
    short
}
