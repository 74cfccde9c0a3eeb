//! `kvmctl create` against what a real virtctl (v1.7) printed and refused, recorded by `cargo xtask soak virtctl`.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "support/packed.rs"]
mod packed;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde::Deserialize;
use serde_json::Value;

/// One combination of flags and what virtctl said.
#[derive(Deserialize)]
struct Recorded {
    args: Vec<String>,
    /// The manifest; empty when the flags were refused.
    stdout: String,
    /// Warnings, and the refusal at last.
    stderr: Vec<String>,
}

/// Letters of names that nobody chose.
const LETTERS: &str = "bcdfghjklmnpqrstvwxz2456789";

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/virtctl")
}

fn recorded() -> Vec<Recorded> {
    packed::recorded("virtctl/recorded.jsonl.zst")
}

fn kvmctl(directory: &Path, args: &[String]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kvmctl"))
        .args(args)
        .current_dir(directory)
        .env("KVMLET_SOCKET", "/nowhere/kvmlet.sock")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// The text with a star for what nobody chose in names.
fn without_random_names(text: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in text.split_inclusive(|c: char| c.is_whitespace() || c == '"') {
        let end = word.trim_end_matches(|c: char| c.is_whitespace() || c == '"');
        let rest = &word[end.len()..];
        let is_random =
            |suffix: &str| suffix.len() == 5 && suffix.chars().all(|c| LETTERS.contains(c));
        let named = [
            "vm",
            "imported-volume",
            "instancetype",
            "clusterinstancetype",
            "preference",
            "clusterpreference",
        ]
        .into_iter()
        .find_map(|prefix| {
            let suffix = end.strip_prefix(prefix)?.strip_prefix('-')?;
            let (suffix, more) = suffix.split_at_checked(5)?;
            is_random(suffix).then(|| format!("{prefix}-*{more}"))
        });
        words.push(named.unwrap_or_else(|| end.to_owned()) + rest);
    }
    words.concat()
}

fn lines(bytes: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(bytes).unwrap();
    text.lines().map(without_random_names).collect()
}

/// The value of a manifest, which has the form of YAML.
fn value(yaml: &str) -> Value {
    proto_node::manifest::value(without_random_names(yaml).as_bytes()).unwrap()
}

#[test]
fn create_prints_and_refuses_what_virtctl_does() {
    let (mut printed, mut refused, mut wrong) = (0, 0, Vec::new());
    for recorded in recorded() {
        let output = kvmctl(&directory(), &recorded.args);
        let stdout = std::str::from_utf8(&output.stdout).unwrap();
        let words: Vec<String> = recorded
            .stderr
            .iter()
            .map(|line| without_random_names(line))
            .collect();
        let is_refused = recorded.stdout.is_empty();
        let is_same = lines(&output.stderr) == words
            && output.status.code() == Some(i32::from(is_refused))
            && if is_refused {
                stdout.is_empty()
            } else {
                !stdout.is_empty() && value(stdout) == value(&recorded.stdout)
            };
        *(if is_refused {
            &mut refused
        } else {
            &mut printed
        }) += 1;
        if !is_same {
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            wrong.push(format!(
                "{:?}\nvirtctl: {}{:?}\nkvmctl: {stdout}{stderr:?}\n",
                recorded.args, recorded.stdout, recorded.stderr
            ));
        }
    }
    assert!(printed >= 200 && refused >= 200, "{printed} and {refused}");
    assert!(
        wrong.is_empty(),
        "{} of {} differ:\n{}",
        wrong.len(),
        printed + refused,
        wrong.iter().take(5).cloned().collect::<String>()
    );
}

#[test]
fn what_create_prints_passes_validate() {
    let manifests = tempfile::tempdir().unwrap();
    let mut count = 0;
    for (index, recorded) in recorded().iter().enumerate() {
        let output = kvmctl(&directory(), &recorded.args);
        if output.status.success() {
            count += 1;
            std::fs::write(
                manifests.path().join(format!("{index}.yaml")),
                output.stdout,
            )
            .unwrap();
        }
    }
    let args = ["validate", "-o", "json", "-f", "."].map(str::to_owned);
    let judged = kvmctl(manifests.path(), &args);
    let judged: Vec<Value> = String::from_utf8(judged.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(judged.len(), count);
    let mut verdicts: BTreeMap<String, u32> = BTreeMap::new();
    for object in &judged {
        let verdict = object["verdict"].as_str().unwrap();
        *verdicts.entry(verdict.to_owned()).or_default() += 1;
        assert_ne!(verdict, "refused", "{object:#}");
    }
    assert!(verdicts["accepted"] >= 50, "{verdicts:?}");
}

#[test]
fn an_instance_type_that_is_too_small_for_a_preference_is_refused_with_the_numbers() {
    let directory = tempfile::tempdir().unwrap();
    let words = "create vm --name dev --instancetype u1.nano --preference fedora";
    let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
    let manifest = kvmctl(directory.path(), &words).stdout;
    std::fs::write(directory.path().join("vm.yaml"), manifest).unwrap();
    let args = ["validate", "-f", "vm.yaml"].map(str::to_owned);
    let judged = kvmctl(directory.path(), &args);
    assert_eq!(judged.status.code(), Some(1));
    assert_eq!(
        lines(&judged.stdout),
        [
            "vm.yaml[0] VirtualMachine \"dev\": refused",
            "* spec.instancetype: Not found: failure checking preference requirements: insufficient Memory resources of 512Mi \
             provided by instance type, preference requires 2Gi",
        ]
    );
}
