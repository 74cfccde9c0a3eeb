//! Nothing but its entry, its message and its controller names a kind: what every other place would have to learn of a
//! further one, it asks the table.
//!
//! A place names a kind by a text that is its name, plural, singular or short name, by a constant that stands for its
//! name, or by a variant of an enumeration of kinds. Others are found by what they do: see the trial of renamed kinds in
//! `integration/tests/a_kind_of_a_test.rs`.

#![forbid(unsafe_code)]

mod allowed;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use agent_objects::Kinds;

use self::allowed::ALLOWED;
use self::source::{Piece, pieces};

/// Words of kinds that have other meanings in sources: fields, commands, and plain English.
const COMMON: [&str; 6] = ["event", "namespace", "namespaces", "no", "node", "secret"];

/// Where there are constants for names of kinds that all crates may use.
const CONSTANTS: &str = "proto/node/src/object.rs";

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().unwrap_or_default();
        if path.is_dir() {
            if name != "tests" && name != "generated" {
                sources(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") && name != "tests" {
            found.push(path);
        }
    }
}

/// Every source of the agent, by its place below the root.
fn all_sources() -> BTreeMap<String, Vec<Piece>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for krate in std::fs::read_dir(root.join("agent")).expect("crates") {
        let krate = krate.expect("a crate").path().join("src");
        if krate.is_dir() {
            sources(&krate, &mut files);
        }
    }
    sources(&root.join("proto/node/src"), &mut files);
    let read = files.into_iter().map(|file| {
        let text = std::fs::read_to_string(&file).expect("a source");
        let place = file.strip_prefix(&root).expect("in the clone");
        (place.display().to_string(), pieces(&text))
    });
    read.collect()
}

/// Words that mean a kind, with the kind.
fn words() -> BTreeMap<&'static str, &'static str> {
    let mut words = BTreeMap::new();
    for kind in Kinds::this_release().all() {
        let names = [kind.kind, kind.plural, kind.singular];
        for word in names.iter().chain(kind.short_names) {
            if !COMMON.contains(word) {
                words.insert(*word, kind.kind);
            }
        }
    }
    words
}

/// Constants whose values are names of kinds: `pub const VMI_KIND: &str = "VirtualMachineInstance";`.
fn constants(
    pieces: &[Piece],
    words: &BTreeMap<&str, &'static str>,
) -> BTreeMap<String, &'static str> {
    let mut found = BTreeMap::new();
    for window in pieces.windows(7) {
        let [keyword, name, _, _, _, _, value] = window else {
            continue;
        };
        if let (Some("const"), Some(name), Piece::Text(value)) =
            (keyword.word(), name.word(), value)
            && let Some(kind) = words.get(value.as_str())
        {
            found.insert(name.to_owned(), *kind);
        }
    }
    found
}

/// The kinds that a source names.
fn named(
    pieces: &[Piece],
    words: &BTreeMap<&str, &'static str>,
    constants: &BTreeMap<String, &'static str>,
) -> BTreeSet<&'static str> {
    let mut named = BTreeSet::new();
    for (at, piece) in pieces.iter().enumerate() {
        let kind = match piece {
            Piece::Text(text) => words.get(text.as_str()),
            Piece::Word(word) => constants.get(word).or_else(|| {
                words
                    .get(word.as_str())
                    .filter(|_| is_variant(&pieces[..at]))
            }),
            Piece::Mark(_) => None,
        };
        named.extend(kind);
    }
    named
}

/// Whether what follows is a variant: of an enumeration that is called `Kind`, or ends so.
fn is_variant(before: &[Piece]) -> bool {
    match before {
        [.., Piece::Word(of), first, second] => {
            of.ends_with("Kind") && first.is_mark(':') && second.is_mark(':')
        }
        _ => false,
    }
}

#[test]
fn no_code_matches_over_kinds() {
    let words = words();
    let sources = all_sources();
    let constants = constants(&sources[CONSTANTS], &words);
    assert_eq!(constants.len(), 2, "{constants:?}");
    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (place, pieces) in &sources {
        let named = named(pieces, &words, &constants);
        if !named.is_empty() {
            found.insert(place, named);
        }
    }
    let allowed: BTreeMap<&str, BTreeSet<&str>> = ALLOWED
        .iter()
        .map(|(place, kinds, _)| (*place, kinds.iter().copied().collect()))
        .collect();
    assert_eq!(allowed.len(), ALLOWED.len(), "a file has two lines");
    let mut wrong = Vec::new();
    let places: BTreeSet<&&str> = found.keys().chain(allowed.keys()).collect();
    for place in places {
        let none = BTreeSet::new();
        let found = found.get(*place).unwrap_or(&none);
        let allowed = allowed.get(*place).unwrap_or(&none);
        for kind in found.difference(allowed) {
            wrong.push(format!("{place} names {kind}: ask the table of kinds"));
        }
        for kind in allowed.difference(found) {
            wrong.push(format!(
                "{place} names {kind} no more: strike it in ALLOWED"
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_way_to_name_a_kind_is_seen() {
    let words = words();
    let constants = BTreeMap::from([(String::from("VMI_KIND"), "VirtualMachineInstance")]);
    for (source, kind) in [
        (r#"if kind == "ConfigMap" {}"#, "ConfigMap"),
        (r#"matches!(word, "cm" | "x")"#, "ConfigMap"),
        (r#"const PLURAL: &str = "secrets";"#, "Secret"),
        ("match kind { DataKind::Secret => {} }", "Secret"),
        ("use proto_node::VMI_KIND;", "VirtualMachineInstance"),
    ] {
        let named = named(&pieces(source), &words, &constants);
        assert_eq!(named, BTreeSet::from([kind]), "{source}");
    }
    for source in [
        r#"// "ConfigMap""#,
        "struct Secret;",
        r#"#[cfg(test)] mod tests { const A: &str = "Secret"; }"#,
        r#"value["namespace"]"#,
    ] {
        let named = named(&pieces(source), &words, &constants);
        assert!(named.is_empty(), "{source}");
    }
}
