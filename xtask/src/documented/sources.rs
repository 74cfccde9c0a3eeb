//! The files of Rust of the clone, for those who look for tests and paths in them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context;

/// Directories that have tests.
const TOPS: [&str; 6] = [
    "agent",
    "guest-images",
    "integration",
    "proto",
    "vmm",
    "xtask",
];

/// What a file with tests has at least one of.
const MARKS: [&str; 5] = [
    "#[test]",
    "#[tokio::test",
    "Trial::test",
    "trial(",
    "fuzz_target!",
];

/// Files that tests are looked for in, by their paths.
pub(super) struct Sources(BTreeMap<String, String>);

impl Sources {
    pub(super) fn of(root: &Path) -> anyhow::Result<Self> {
        let mut sources = Self(BTreeMap::new());
        for top in TOPS {
            sources.read(root, Path::new(top))?;
        }
        Ok(sources)
    }

    fn read(&mut self, root: &Path, path: &Path) -> anyhow::Result<()> {
        let place = root.join(path);
        for entry in fs::read_dir(&place).with_context(|| place.display().to_string())? {
            let name = entry?.file_name();
            let path = path.join(&name);
            if root.join(&path).is_dir() {
                if name != "target" {
                    self.read(root, &path)?;
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(root.join(&path))?;
                self.0.insert(path.display().to_string(), text);
            }
        }
        Ok(())
    }

    /// The files that a path means: one, or all below a directory.
    pub(super) fn files(&self, path: &str) -> Vec<&str> {
        let is_meant = |file: &str| {
            let mut rests = file.match_indices(path);
            rests.any(|(place, _)| {
                let before = place == 0 || file[..place].ends_with('/');
                let after = &file[place + path.len()..];
                before && (after.is_empty() || after.starts_with('/'))
            })
        };
        let files = self.0.iter().filter(|(file, _)| is_meant(file));
        files.map(|(_, text)| text.as_str()).collect()
    }

    /// Why a test is not there; `named` are the paths that its cell names.
    pub(super) fn judge(&self, test: &str, named: &[&str]) -> Result<(), String> {
        if test.starts_with("cargo xtask ") {
            return Ok(());
        }
        if !is_path(test) {
            let is_there = named.iter().any(|path| self.has(path, test));
            let why = || format!("no file of its cell has a test {test}");
            return is_there.then_some(()).ok_or_else(why);
        }
        let (path, name) = test.split_once("::").unwrap_or((test, ""));
        if self.files(path).is_empty() {
            return Err(format!("there is no file {path}"));
        }
        match (self.has(path, name), name) {
            (true, _) => Ok(()),
            (false, "") => Err(format!("{path} has no tests")),
            (false, name) => Err(format!("{path} has no test {name}")),
        }
    }

    /// Whether a path has a test of this name; of any, if that is empty.
    pub(super) fn has(&self, path: &str, name: &str) -> bool {
        let is_in = |text: &&str| {
            if name.is_empty() {
                MARKS.iter().any(|mark| text.contains(mark))
            } else {
                is_test(text, name) || is_trial(text, name)
            }
        };
        self.files(path).iter().any(is_in)
    }
}

/// Whether a text has a function of this name that each run of the tests runs.
fn is_test(text: &str, name: &str) -> bool {
    let definition = format!("fn {name}(");
    text.match_indices(&definition).any(|(place, _)| {
        // Attributes and comments stand above its line, without an empty line.
        let (before, _) = text[..place].rsplit_once('\n').unwrap_or_default();
        let lines = before.lines().rev();
        let above: Vec<&str> = lines.take_while(|line| !line.trim().is_empty()).collect();
        let has = |mark: &str| above.iter().any(|line| line.trim().starts_with(mark));
        // What a run leaves out shows nothing.
        (has("#[test]") || has("#[tokio::test")) && !has("#[ignore")
    })
}

/// Whether a text has a trial of this name, in a program with a `main` of its own.
fn is_trial(text: &str, name: &str) -> bool {
    let is_program = ["Trial::test", "trial("].iter().any(|it| text.contains(it));
    is_program && text.contains(&format!("\"{name}\""))
}

pub(super) fn is_path(text: &str) -> bool {
    text.contains(['/', '.'])
}
