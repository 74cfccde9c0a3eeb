//! `cargo xtask layers`: circles of files, that is, files of one crate that import each other, directly or through
//! others. Files in a circle can only be read, tested and moved together. No crate may have any.

mod graph;
mod imports;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use self::graph::Graph;
use self::imports::ModulePath;

/// The circles of a crate: the files of each, in order of their names.
type Circles = Vec<Vec<String>>;

/// Returns one sentence for each crate with circles.
///
/// # Errors
/// When a source file cannot be read.
pub fn violations(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for package in packages(root)? {
        found.extend(violation(&package, &circles(&root.join(&package))?));
    }
    Ok(found)
}

/// Prints the circles of every crate with their files.
///
/// # Errors
/// When a source file cannot be read.
pub fn print(root: &Path) -> anyhow::Result<()> {
    for package in packages(root)? {
        for circle in circles(&root.join(&package))? {
            println!(
                "{package}: {} files\n  {}",
                circle.len(),
                circle.join("\n  ")
            );
        }
    }
    Ok(())
}

fn violation(package: &str, circles: &Circles) -> Option<String> {
    if circles.is_empty() {
        return None;
    }
    let members: Vec<String> = circles.iter().map(|circle| circle.join(", ")).collect();
    Some(format!(
        "files of {package} import each other in circles: move what they share to a file of its own ({})",
        members.join(" | ")
    ))
}

/// Directories of the crates below `root`, relative to it, in order of their names. What builds made is none of them.
fn packages(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        if directory.join("Cargo.toml").is_file() && directory.join("src").is_dir() {
            found.push(directory.strip_prefix(root)?.display().to_string());
        }
        let entries = fs::read_dir(&directory).with_context(|| directory.display().to_string())?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let is_ours =
                name != "target" && name != "src" && !name.to_string_lossy().starts_with('.');
            // A link to a directory is followed nowhere.
            if is_ours && entry.file_type()?.is_dir() {
                directories.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The circles of the crate at `package`.
fn circles(package: &Path) -> anyhow::Result<Circles> {
    let source = package.join("src");
    let files = modules(&source)?;
    let mut graph = Graph::default();
    for (module, file) in &files {
        if module.iter().any(|name| name == "tests") {
            continue;
        }
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let is_module = |path: &[String]| files.contains_key(path);
        for import in imports::of_file(&text, module, is_module) {
            graph.add(module.join("::"), import.join("::"));
        }
    }
    Ok(graph.circles())
}

/// The file of every module below `source`; that of the crate itself has an empty path.
fn modules(source: &Path) -> anyhow::Result<BTreeMap<ModulePath, PathBuf>> {
    let mut found = BTreeMap::new();
    let mut directories = vec![source.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let module = module_path(path.strip_prefix(source)?);
                // Of a library and a program in one package, the library has the modules.
                let is_program = path.file_name().is_some_and(|name| name == "main.rs");
                if !is_program || !source.join("lib.rs").exists() {
                    found.insert(module, path);
                }
            }
        }
    }
    Ok(found)
}

/// `a/b/mod.rs` and `a/b.rs` are `a::b`; `lib.rs` is the crate.
fn module_path(file: &Path) -> ModulePath {
    let stem = file.with_extension("");
    let mut path: ModulePath = stem
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    let is_root = path.len() == 1 && ["lib", "main"].contains(&path[0].as_str());
    if is_root || path.last().is_some_and(|name| name == "mod") {
        path.pop();
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(files: &[(&str, &str)]) -> Circles {
        let directory = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            let path = directory.path().join("src").join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(path, text).expect("written");
        }
        circles(directory.path()).expect("readable")
    }

    #[test]
    fn files_that_import_each_other_over_a_third_are_a_circle() {
        let found = package(&[
            ("lib.rs", "mod a;\nmod b;\nmod c;\nuse a::A;"),
            ("a.rs", "use crate::b::{B, Other};"),
            ("b.rs", "fn f() -> crate::c::C {}"),
            ("c.rs", "use super::a::A;"),
        ]);
        assert_eq!(found, [["a", "b", "c"]]);
    }

    #[test]
    fn children_that_use_what_their_parent_defines_are_a_circle_with_it() {
        let parent = "mod child;\nuse child::Child;\nstruct Shared;";
        let found = package(&[
            ("lib.rs", "mod a;"),
            ("a/mod.rs", parent),
            ("a/child.rs", "use super::Shared;"),
        ]);
        assert_eq!(found, [["a", "a::child"]]);
    }

    #[test]
    fn tests_and_words_in_comments_are_no_imports() {
        let found = package(&[
            ("lib.rs", "mod a;\nmod b;"),
            ("a.rs", "use crate::b::B;"),
            (
                "b.rs",
                "/// See `crate::a::A`.\nstruct B;\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n",
            ),
        ]);
        assert_eq!(found, Circles::new());
    }

    #[test]
    fn a_parent_that_calls_its_child_imports_it() {
        let found = package(&[
            ("lib.rs", "mod a;"),
            (
                "a.rs",
                "mod child;\nstruct Shared;\nfn f() { child::f(Shared) }",
            ),
            ("a/child.rs", "pub fn f(_: super::Shared) {}"),
        ]);
        assert_eq!(found, [["a", "a::child"]]);
    }

    #[test]
    fn files_of_tests_may_import_what_they_test() {
        let found = package(&[
            ("lib.rs", "mod a;"),
            (
                "a.rs",
                "#[cfg(test)]\nuse tests::shown;\n#[cfg(test)]\nmod tests;",
            ),
            ("a/tests.rs", "use super::*;"),
        ]);
        assert_eq!(found, Circles::new());
    }

    #[test]
    fn a_circle_is_refused_with_its_files() {
        assert_eq!(violation("a", &vec![]), None);
        let circle = vec![String::from("one"), String::from("two")];
        let refused = violation("a", &vec![circle]).expect("a circle");
        assert!(
            refused.contains("move what they share to a file of its own (one, two)"),
            "{refused}"
        );
    }
}
