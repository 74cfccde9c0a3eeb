//! The verdicts of `kvmctl validate` on many objects.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde_json::Value;

/// Why an object is refused.
#[derive(Debug, Deserialize)]
pub struct Cause {
    pub field: String,
    pub message: String,
}

/// A line of `kvmctl validate -o json`.
#[derive(Debug, Deserialize)]
pub struct Judged {
    file: String,
    pub verdict: String,
    pub causes: Vec<Cause>,
}

/// The verdicts, by number of the object.
pub fn judged<'a>(objects: impl Iterator<Item = &'a Value>) -> BTreeMap<usize, Judged> {
    let directory = tempfile::tempdir().unwrap();
    for (index, object) in objects.enumerate() {
        let file = directory.path().join(format!("{index}.json"));
        std::fs::write(file, object.to_string()).unwrap();
    }
    let output = Command::new(env!("CARGO_BIN_EXE_kvmctl"))
        .args(["validate", "-R", "-o", "json", "-f"])
        .arg(directory.path())
        .env("KVMLET_SOCKET", "/nowhere/kvmlet.sock")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|line| {
        let judged: Judged = serde_json::from_str(line).unwrap();
        let stem = Path::new(&judged.file).file_stem().unwrap();
        (stem.to_str().unwrap().parse().unwrap(), judged)
    });
    lines.collect()
}
