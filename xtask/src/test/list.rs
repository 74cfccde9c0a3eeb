//! Which tests there are: the test binaries as cargo builds them, and what each of them lists.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;
use cargo_metadata::{Message, MetadataCommand};
use integration::artifacts;
use integration::process::{self, cargo};

use crate::build::{TESTGUEST, testguest_target};

/// One test function.
#[derive(Clone)]
pub(crate) struct Test {
    /// The package, for example `agent-plan`.
    pub package: String,
    /// The target inside the package: library, binary or file of `tests/`.
    pub target: String,
    /// The function with its modules.
    pub function: String,
    /// The test binary.
    pub program: PathBuf,
    /// The package's directory, where cargo runs tests.
    pub directory: PathBuf,
    /// Reason of `#[ignore = "..."]`, empty where none is given; absent when the test runs.
    pub ignored: Option<String>,
}

impl Test {
    pub(super) fn name(&self) -> String {
        format!("{}::{} {}", self.package, self.target, self.function)
    }
}

struct Binary {
    package: String,
    target: String,
    program: PathBuf,
    directory: PathBuf,
}

/// Builds all test binaries and asks each for its tests. Those of `integration` come first, because
/// they take longest.
pub(super) fn all(root: &Path) -> anyhow::Result<Vec<Test>> {
    let profile = artifacts::profile()?;
    let mut binaries = build(root, &profile, &["--workspace".to_owned()])?;
    let target = testguest_target()?.display().to_string();
    // A workspace of its own, which has no other profile.
    binaries.extend(build(
        &root.join(TESTGUEST),
        "release",
        &["--lib".to_owned(), "--target-dir".to_owned(), target],
    )?);
    binaries.sort_by_key(|binary| binary.package != "integration");
    let mut tests = Vec::new();
    for binary in &binaries {
        tests.extend(tests_of(binary)?);
    }
    Ok(tests)
}

/// The tests of one package in files of `tests/`. They are built of the whole workspace, so that dependencies serve that
/// were built before.
pub(crate) fn of_package(root: &Path, package: &str, files: &[&str]) -> anyhow::Result<Vec<Test>> {
    let mut arguments = vec!["--workspace".to_owned()];
    for file in files {
        arguments.extend(["--test".to_owned(), (*file).to_owned()]);
    }
    let mut tests = Vec::new();
    for binary in build(root, &artifacts::profile()?, &arguments)? {
        if binary.package == package {
            tests.extend(tests_of(&binary)?);
        }
    }
    Ok(tests)
}

fn build(directory: &Path, profile: &str, arguments: &[String]) -> anyhow::Result<Vec<Binary>> {
    let metadata = MetadataCommand::new()
        .manifest_path(directory.join("Cargo.toml"))
        .no_deps()
        .exec()?;
    let homes: BTreeMap<_, _> = metadata
        .packages
        .iter()
        .filter_map(|package| {
            Some((
                &package.id,
                (
                    package.name.to_string(),
                    package.manifest_path.parent()?.to_owned(),
                ),
            ))
        })
        .collect();
    let mut child = cargo(directory)
        .args([
            "test",
            "--profile",
            profile,
            "--no-run",
            "--message-format=json-render-diagnostics",
        ])
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()?;
    let messages = std::io::BufReader::new(child.stdout.take().context("cargo has no output")?);
    let mut binaries = Vec::new();
    for message in Message::parse_stream(messages) {
        if let Message::CompilerArtifact(artifact) = message?
            && artifact.profile.test
            && let (Some(program), Some((package, home))) =
                (artifact.executable, homes.get(&artifact.package_id))
        {
            binaries.push(Binary {
                package: package.clone(),
                target: artifact.target.name,
                program: program.into(),
                directory: home.into(),
            });
        }
    }
    anyhow::ensure!(child.wait()?.success(), "the tests do not build");
    Ok(binaries)
}

fn tests_of(binary: &Binary) -> anyhow::Result<Vec<Test>> {
    let list = |arguments: &[&str]| {
        let mut command = Command::new(&binary.program);
        command
            .args(["--list", "--format", "terse"])
            .args(arguments)
            .current_dir(&binary.directory);
        process::output(&mut command)
    };
    let functions = |text: &str| -> Vec<String> {
        text.lines()
            .filter_map(|line| line.strip_suffix(": test"))
            .map(str::to_owned)
            .collect()
    };
    let ignored = reasons(binary, &functions(&list(&["--ignored"])?))?;
    Ok(functions(&list(&[])?)
        .into_iter()
        .map(|function| Test {
            package: binary.package.clone(),
            target: binary.target.clone(),
            ignored: ignored.get(&function).cloned(),
            function,
            program: binary.program.clone(),
            directory: binary.directory.clone(),
        })
        .collect())
}

/// Why each of a binary's ignored tests is: no list of the harness says it, but a run that is asked for them and leaves them
/// out.
fn reasons(binary: &Binary, ignored: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    if ignored.is_empty() {
        // A run that is asked for none runs all.
        return Ok(BTreeMap::new());
    }
    let mut command = Command::new(&binary.program);
    command
        .args(["--exact", "--test-threads=1", "--format", "pretty"])
        .args(ignored)
        .current_dir(&binary.directory);
    let said = process::output(&mut command)?;
    let found: BTreeMap<&str, &str> = said.lines().filter_map(ignored_line).collect();
    let reason = |function: &String| {
        let reason = found.get(function.as_str()).copied().unwrap_or_default();
        (function.clone(), reason.to_owned())
    };
    Ok(ignored.iter().map(reason).collect())
}

/// The function and the reason, which may be empty, of a line such as `test module::function ... ignored, a campaign`.
fn ignored_line(line: &str) -> Option<(&str, &str)> {
    let (name, rest) = line.strip_prefix("test ")?.split_once(" ... ignored")?;
    // What a test should do stands behind its name: `function - should panic`.
    let (function, _) = name.split_once(" - ").unwrap_or((name, ""));
    let reason = match rest {
        "" => "",
        rest => rest.strip_prefix(", ")?,
    };
    Some((function, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_ignored_tests_have_a_reason_or_none() {
        for (line, wanted) in [
            (
                "test slow::twice ... ignored, a campaign: five ... of them",
                Some(("slow::twice", "a campaign: five ... of them")),
            ),
            ("test plain ... ignored", Some(("plain", ""))),
            (
                "test bad - should panic ... ignored, breaks",
                Some(("bad", "breaks")),
            ),
            ("test runs ... ok", None),
            ("test runs ... ignoredness", None),
            ("test result: ok. 0 passed; 0 failed; 2 ignored", None),
        ] {
            assert_eq!(ignored_line(line), wanted, "{line}");
        }
    }

    /// By a binary of the toolchain that builds the tests: its harness's words are no promise.
    #[test]
    fn the_harness_gives_the_reason_of_a_test_that_it_leaves_out() {
        const SOURCE: &str = "#[test] fn runs() {}
            #[test] #[ignore] fn bare() { panic!() }
            mod slow {
                #[test] #[ignore = \"a campaign: five of them\"] fn twice() { panic!() }
                #[test] #[ignore = \"breaks\"] #[should_panic] fn breaks() {}
            }";
        let directory = tempfile::tempdir().expect("a directory");
        let (source, program) = (directory.path().join("a.rs"), directory.path().join("a"));
        std::fs::write(&source, SOURCE).expect("is written");
        let mut rustc = Command::new("rustc");
        rustc.arg("--test").arg(&source).arg("-o").arg(&program);
        process::output(&mut rustc).expect("is built");
        let binary = Binary {
            package: String::from("a"),
            target: String::from("a"),
            program,
            directory: directory.path().to_owned(),
        };
        let mut tests: Vec<_> = tests_of(&binary)
            .expect("are listed")
            .into_iter()
            .map(|test| (test.function, test.ignored))
            .collect();
        tests.sort();
        let test =
            |function: &str, reason: Option<&str>| (function.to_owned(), reason.map(str::to_owned));
        let wanted = [
            test("bare", Some("")),
            test("runs", None),
            test("slow::breaks", Some("breaks")),
            test("slow::twice", Some("a campaign: five of them")),
        ];
        assert_eq!(tests, wanted);
    }
}
