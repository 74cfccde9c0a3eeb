//! `cargo xtask layers`: cycles of files, that is, files of one crate that import each other, directly or through
//! others. Files in a cycle can only be read, tested and moved together. No library, program or test may have any.

mod graph;
mod imports;
mod modules;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use cargo_metadata::MetadataCommand;

use self::graph::Graph;
use self::modules::modules;

/// The cycles of a package: the files of each, as paths from the package's directory.
type Cycles = BTreeSet<Vec<String>>;

/// Directories of packages, each with the files that its crates begin with.
type Roots = BTreeMap<PathBuf, Vec<PathBuf>>;

/// Returns one sentence for each package with cycles.
///
/// # Errors
/// When a source file cannot be read.
pub fn violations(root: &Path) -> anyhow::Result<Vec<String>> {
    let packages = cycles_of_packages(root)?.into_iter();
    Ok(packages
        .filter_map(|(package, cycles)| violation(&package, &cycles))
        .collect())
}

/// Prints the cycles of every package with their files.
///
/// # Errors
/// When a source file cannot be read.
pub fn print(root: &Path) -> anyhow::Result<()> {
    for (package, cycles) in cycles_of_packages(root)? {
        for cycle in cycles {
            println!("{package}: {} files\n  {}", cycle.len(), cycle.join("\n  "));
        }
    }
    Ok(())
}

fn violation(package: &str, cycles: &Cycles) -> Option<String> {
    if cycles.is_empty() {
        return None;
    }
    let members: Vec<String> = cycles.iter().map(|cycle| cycle.join(", ")).collect();
    Some(format!(
        "files of {package} import each other in cycles: move what they share to a file of its own ({})",
        members.join(" | ")
    ))
}

/// The cycles of each package below `root`, by its directory, in the order of these.
fn cycles_of_packages(root: &Path) -> anyhow::Result<Vec<(String, Cycles)>> {
    let root = fs::canonicalize(root).with_context(|| root.display().to_string())?;
    let mut found = Vec::new();
    let mut roots = Roots::new();
    for package in packages(&root)? {
        let directory = root.join(&package);
        if !roots.contains_key(&directory) {
            add_roots(&directory, &mut roots)?;
        }
        let mut all = Cycles::new();
        for file in roots.get(&directory).into_iter().flatten() {
            all.extend(cycles(&directory, file)?);
        }
        found.push((package, all));
    }
    Ok(found)
}

/// Adds the libraries, programs, tests and build scripts of the package in `directory`, and of all packages of its workspace.
fn add_roots(directory: &Path, roots: &mut Roots) -> anyhow::Result<()> {
    let metadata = MetadataCommand::new()
        .manifest_path(directory.join("Cargo.toml"))
        .no_deps()
        .exec()
        .with_context(|| format!("cargo metadata in {}", directory.display()))?;
    for package in metadata.packages {
        let Some(directory) = package.manifest_path.parent() else {
            continue;
        };
        let files = package.targets.into_iter().map(|target| target.src_path);
        roots.insert(
            directory.as_std_path().to_owned(),
            files.map(Into::into).collect(),
        );
    }
    Ok(())
}

/// Directories of the packages below `root`, relative to it, in order of their names. What builds made is none of them.
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

/// The cycles of the crate that begins with the file `root`, of the package in `package`.
fn cycles(package: &Path, root: &Path) -> anyhow::Result<Cycles> {
    let files = modules(root)?;
    let mut graph = Graph::default();
    for (module, file) in &files {
        let is_module = |path: &[String]| files.contains_key(path);
        for import in imports::of_file(&file.text, module, is_module) {
            graph.add(module.clone(), import);
        }
    }
    let shown = |module| {
        let file = files.get(module).map(|file| file.path.as_path());
        let file = file.unwrap_or_else(|| Path::new(""));
        let from_package = file.strip_prefix(package).unwrap_or(file);
        from_package.display().to_string()
    };
    let found = graph.cycles();
    Ok(found
        .iter()
        .map(|cycle| cycle.iter().map(shown).collect())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cycles of a crate of these files, which begins with the first.
    fn package(files: &[(&str, &str)]) -> Cycles {
        let directory = tempfile::tempdir().expect("a directory");
        let package = directory.path();
        for (name, text) in files {
            let path = package.join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(path, text).expect("written");
        }
        cycles(package, &package.join(files[0].0)).expect("readable")
    }

    fn cycle(files: &[&str]) -> Cycles {
        [files.iter().map(|file| (*file).to_owned()).collect()].into()
    }

    #[test]
    fn files_that_import_each_other_over_a_third_are_a_circle() {
        let found = package(&[
            ("lib.rs", "mod a;\nmod b;\nmod c;\nuse a::A;"),
            ("a.rs", "use crate::b::{B, Other};"),
            ("b.rs", "fn f() -> crate::c::C {}"),
            ("c.rs", "use super::a::A;"),
        ]);
        assert_eq!(found, cycle(&["a.rs", "b.rs", "c.rs"]));
    }

    #[test]
    fn children_that_use_what_their_parent_defines_are_a_circle_with_it() {
        let parent = "mod child;\nuse child::Child;\nstruct Shared;";
        let found = package(&[
            ("lib.rs", "mod a;"),
            ("a/mod.rs", parent),
            ("a/child.rs", "use super::Shared;"),
        ]);
        assert_eq!(found, cycle(&["a/mod.rs", "a/child.rs"]));
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
        assert_eq!(found, Cycles::new());
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
        assert_eq!(found, cycle(&["a.rs", "a/child.rs"]));
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
        assert_eq!(found, Cycles::new());
    }

    #[test]
    fn a_test_has_the_files_that_it_declares_beside_itself_and_elsewhere() {
        let found = package(&[
            (
                "tests/one.rs",
                "#[path = \"common/shared.rs\"]\nmod shared;\nmod own;\nstruct Root;",
            ),
            (
                "tests/common/shared.rs",
                "mod more;\nuse crate::own::Own;\nuse more::More;",
            ),
            ("tests/common/more.rs", "use crate::shared::Shared;"),
            ("tests/own.rs", "use crate::shared::Shared;"),
            ("tests/other.rs", "use crate::own::Own;"),
        ]);
        let files = [
            "tests/own.rs",
            "tests/common/shared.rs",
            "tests/common/more.rs",
        ];
        assert_eq!(found, cycle(&files));
    }

    #[test]
    fn a_circle_is_refused_with_its_files() {
        assert_eq!(violation("a", &Cycles::new()), None);
        let refused = violation("a", &cycle(&["one", "two"])).expect("a cycle");
        assert!(
            refused.contains("move what they share to a file of its own (one, two)"),
            "{refused}"
        );
    }
}
