//! The files of a crate: that which it begins with, and those that `mod` declarations lead to.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::imports::ModulePath;

/// A file of a crate.
pub(super) struct ModuleFile {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// A module that a file declares.
struct Declared<'a> {
    name: &'a str,
    /// What its attribute `path` says.
    path: Option<&'a str>,
}

/// The file of every module of the crate that begins with `root`, whose own module path is empty. Modules called `tests` and
/// what is below them are left out: they may import what they test.
pub(super) fn modules(root: &Path) -> anyhow::Result<BTreeMap<ModulePath, ModuleFile>> {
    let mut found = BTreeMap::new();
    let mut open = vec![(ModulePath::new(), root.to_owned(), directory_of(root))];
    // `children` is where modules that the file declares are.
    while let Some((module, path, children)) = open.pop() {
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        for child in declared(&text) {
            if child.name == "tests" {
                continue;
            }
            let mut name = module.clone();
            name.push(child.name.to_owned());
            let below = children.join(child.name);
            if let Some(elsewhere) = child.path {
                let file = directory_of(&path).join(elsewhere);
                let below = directory_of(&file);
                open.push((name, file, below));
            } else if below.join("mod.rs").is_file() {
                open.push((name, below.join("mod.rs"), below));
            } else {
                open.push((name, below.with_extension("rs"), below));
            }
        }
        found.insert(module, ModuleFile { path, text });
    }
    Ok(found)
}

fn directory_of(file: &Path) -> PathBuf {
    file.parent().unwrap_or(file).to_owned()
}

/// The modules in other files, which rustfmt writes at the beginning of a line.
fn declared(text: &str) -> Vec<Declared<'_>> {
    let mut found = Vec::new();
    let mut path = None;
    for line in text.lines() {
        if let Some(quoted) = line.strip_prefix("#[path = \"") {
            path = quoted.strip_suffix("\"]");
        } else if let Some(name) = declaration(line) {
            let path = path.take();
            found.push(Declared { name, path });
        }
    }
    found
}

/// The name in `mod name;`, `pub mod name;` or `pub(crate) mod name;`.
fn declaration(line: &str) -> Option<&str> {
    let (before, name) = line.strip_suffix(';')?.split_once("mod ")?;
    let is_declaration = before.is_empty() || (before.starts_with("pub") && before.ends_with(' '));
    let name = name.strip_prefix("r#").unwrap_or(name);
    is_declaration.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_declared_at_the_beginning_of_a_line() {
        let text = "mod a;\npub mod b;\npub(crate) mod r#gen;\n#[path = \"../x.rs\"]\nmod c;\n\
                    mod d {\n    mod e;\n}\nuse mod_f;\n// mod g;\nmod h;";
        let found = declared(text).into_iter();
        let found: Vec<_> = found.map(|module| (module.name, module.path)).collect();
        let expected = [
            ("a", None),
            ("b", None),
            ("gen", None),
            ("c", Some("../x.rs")),
            ("h", None),
        ];
        assert_eq!(found, expected);
    }
}
