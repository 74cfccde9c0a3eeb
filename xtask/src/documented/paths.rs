//! Paths of the repository that pages name are there.

use std::fs;
use std::path::Path;

use anyhow::Context;

use super::sources::Sources;

/// The pages beside those of `docs`.
const PAGES: [&str; 4] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
];

/// Where paths that begin at the root of the clone begin.
const TOPS: [&str; 9] = [
    ".ci/",
    "agent/",
    "docs/",
    "guest-images/",
    "integration/",
    "proto/",
    "systemd/",
    "vmm/",
    "xtask/",
];

/// The paths that pages name, and links to, and that are not there.
pub(super) fn violations(root: &Path, sources: &Sources) -> anyhow::Result<Vec<String>> {
    let mut pages: Vec<String> = PAGES.map(str::to_owned).into();
    add_pages(root, Path::new("docs"), &mut pages)?;
    let mut wrong = Vec::new();
    for page in pages {
        let path = root.join(&page);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let dir = path.parent().unwrap_or(root);
        for (number, line) in text.lines().enumerate() {
            let named = named(line).filter(|name| !is_there(root, name, sources));
            let linked = linked(line).filter(|link| !dir.join(link).exists());
            let missing = named.chain(linked);
            wrong.extend(missing.map(|name| format!("{page}:{}: there is no {name}", number + 1)));
        }
    }
    Ok(wrong)
}

fn add_pages(root: &Path, dir: &Path, pages: &mut Vec<String>) -> anyhow::Result<()> {
    let place = root.join(dir);
    for entry in fs::read_dir(&place).with_context(|| place.display().to_string())? {
        let path = dir.join(entry?.file_name());
        if root.join(&path).is_dir() {
            add_pages(root, &path, pages)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path.display().to_string());
        }
    }
    Ok(())
}

/// Words that are paths of the repository: they begin at its root, or are files of Rust at any depth.
fn named(line: &str) -> impl Iterator<Item = &str> {
    let is_of_path = |character: char| character.is_alphanumeric() || "_-./*".contains(character);
    let words = line.split(move |character| !is_of_path(character));
    let words = words.map(|word| word.trim_end_matches(['.', '/']));
    words.filter(|word| is_file_of_rust(word) || TOPS.iter().any(|top| word.starts_with(top)))
}

fn is_file_of_rust(word: &str) -> bool {
    let name = word.strip_suffix(".rs").unwrap_or_default();
    // What follows the scheme of an address is none.
    !name.is_empty() && !name.starts_with('/')
}

/// Where links to other files lead, from the directory of their page.
fn linked(line: &str) -> impl Iterator<Item = &str> {
    let links = line.split("](").skip(1);
    let links = links.filter_map(|rest| rest.split_once(')').map(|(link, _)| link));
    let links = links.filter(|link| !link.contains("://"));
    let files = links.filter_map(|link| link.split('#').next());
    files.filter(|file| !file.is_empty())
}

/// Whether a path is there, up to its first component that stands for any.
fn is_there(root: &Path, path: &str, sources: &Sources) -> bool {
    if root.join(path).exists() || (is_file_of_rust(path) && !sources.files(path).is_empty()) {
        return true;
    }
    let components: Vec<&str> = path.split('/').collect();
    let known = components.iter().take_while(|part| !is_placeholder(part));
    let known: Vec<&str> = known.copied().collect();
    known.len() < components.len() && root.join(known.join("/")).exists()
}

/// `*`, or a word in capitals such as `TARGET`, perhaps with an extension: but pages such as `README.md` are what they are.
fn is_placeholder(component: &str) -> bool {
    let (name, extension) = component.split_once('.').unwrap_or((component, ""));
    let is_in_capitals =
        extension != "md" && !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase());
    is_in_capitals || component.contains('*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_not_there_is_found_wherever_it_stands() {
        let root = crate::workspace::root().expect("here");
        let sources = Sources::of(&root).expect("is read");
        let line = "`xtask/src/documented.rs::NAME`, documented/paths.rs, xtask/src/ and xtask/*/none, \
                    proto/NAME.txt; `xtask/src/none.rs`, docs/none.md. no_such.rs vmm/none/NAME docs/README.md https://rustup.rs";
        let missing = named(line).filter(|name| !is_there(&root, name, &sources));
        let missing: Vec<&str> = missing.collect();
        let expected = [
            "xtask/src/none.rs",
            "docs/none.md",
            "no_such.rs",
            "vmm/none/NAME",
            "docs/README.md",
        ];
        assert_eq!(missing, expected);
        let links = linked("[a](b.md#c) [d](#e) [f](https://g.h/i) `x`(y) [j](../k.md)");
        assert_eq!(links.collect::<Vec<_>>(), ["b.md", "../k.md"]);
    }
}
