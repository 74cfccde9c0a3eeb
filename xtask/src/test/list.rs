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
    /// Marked `#[ignore]`.
    pub ignored: bool,
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
    let ignored = functions(&list(&["--ignored"])?);
    Ok(functions(&list(&[])?)
        .into_iter()
        .map(|function| Test {
            package: binary.package.clone(),
            target: binary.target.clone(),
            ignored: ignored.contains(&function),
            function,
            program: binary.program.clone(),
            directory: binary.directory.clone(),
        })
        .collect())
}
