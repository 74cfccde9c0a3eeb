//! `cargo xtask verdicts`: the verdicts on manifests that others wrote, as a page of `docs/`.
//!
//! KubeVirt's examples are no part of this repository; whoever has them gives their directory. What KubeVirt's own code says of
//! them is recorded, and is compared with the verdicts.

mod judged;
mod recorded;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use integration::artifacts;

use self::judged::Judged;

/// The page that is written, below the root of the clone.
const PAGE: &str = "docs/kubevirt-examples.md";

/// Causes of one object that are shown; the rest are counted.
const SHOWN: usize = 3;

const HEAD: &str = "# KubeVirt's examples

What `kvmctl validate` says of manifests from KubeVirt's and CDI's repositories and user guides. Verdicts are distinguished
as [kvmctl.md](kvmctl.md#validating-manifests-without-a-node) has it: *refused* is what KubeVirt refuses too, *unsupported* is
legal and beyond this release. `cargo xtask verdicts DIRECTORY` writes this page.

";

/// Options of `cargo xtask verdicts`.
#[derive(clap::Args)]
pub struct VerdictsOptions {
    /// Directory of manifests; those below it count too.
    directory: PathBuf,
    /// Write nothing; fail when the page differs from what would be written, or a verdict from what KubeVirt says.
    #[arg(long)]
    check: bool,
}

/// Judges every manifest and writes the page.
///
/// # Errors
/// When something cannot be read or, with `check`, when the page is not as it would be.
pub fn run(root: &Path, options: &VerdictsOptions) -> anyhow::Result<()> {
    let (judged, unread) = judged(root, &options.directory)?;
    let page = page(&judged, &unread, &options.directory)?;
    let path = root.join(PAGE);
    if options.check {
        let present =
            fs::read_to_string(&path).with_context(|| format!("{PAGE} cannot be read"))?;
        anyhow::ensure!(
            present == page,
            "{PAGE} is not what `cargo xtask verdicts` writes of these manifests"
        );
        return recorded::check(&judged, &options.directory);
    }
    fs::write(&path, page).with_context(|| format!("{PAGE} cannot be written"))
}

/// The verdicts, and the complaints about what cannot be read.
fn judged(root: &Path, directory: &Path) -> anyhow::Result<(Vec<Judged>, Vec<String>)> {
    let output = integration::process::cargo(root)
        .args(["run", "--profile", &artifacts::profile()?])
        .args(["--quiet", "--bin", "kvmctl", "--"])
        .args(["validate", "-R", "-o", "json", "-f"])
        .arg(directory)
        .output()
        .context("kvmctl cannot be run")?;
    let complaints = String::from_utf8(output.stderr)?;
    // 1: not all are accepted; 2: not all can be read.
    anyhow::ensure!(
        matches!(output.status.code(), Some(0..=2)) && !output.stdout.is_empty(),
        "kvmctl validate ended with {}:\n{complaints}",
        output.status,
    );
    let judged: Result<_, _> = String::from_utf8(output.stdout)?
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| format!("no verdict: {line}")))
        .collect();
    Ok((judged?, unread(&complaints)))
}

/// Each complaint is the place of a document, and below it what is wrong there.
fn unread(complaints: &str) -> Vec<String> {
    let lines: Vec<&str> = complaints.lines().collect();
    lines
        .windows(2)
        .filter_map(|pair| match pair {
            [place, wrong] => Some((place.strip_prefix("error: ")?, wrong.strip_prefix("* ")?)),
            _ => None,
        })
        .map(|(place, wrong)| format!("{place} {wrong}"))
        .collect()
}

fn page(judged: &[Judged], unread: &[String], directory: &Path) -> anyhow::Result<String> {
    let mut page = String::from(HEAD);
    for verdict in ["accepted", "unsupported", "refused"] {
        let count = judged
            .iter()
            .filter(|object| object.verdict == verdict)
            .count();
        writeln!(page, "- {count} {verdict}")?;
    }
    let beginning = format!("{}/", directory.display());
    for complaint in unread {
        let complaint = complaint.strip_prefix(&beginning).unwrap_or(complaint);
        writeln!(page, "- not readable as YAML: {complaint}")?;
    }
    page.push_str("\n| Example | Object | Verdict | Why |\n| --- | --- | --- | --- |\n");
    for object in judged {
        let file = Path::new(&object.file);
        let file = file.strip_prefix(directory).unwrap_or(file).display();
        writeln!(
            page,
            "| {file} | {} {} | {} | {} |",
            object.kind,
            object.name,
            object.verdict,
            why(object)
        )?;
    }
    Ok(page)
}

/// The first causes; what others wrote is shown as it is written.
fn why(object: &Judged) -> String {
    let mut causes: Vec<String> = object
        .causes
        .iter()
        .take(SHOWN)
        .map(|cause| {
            let text = cause.message.replace('|', "\\|");
            if cause.field.is_empty() || text.contains(&cause.field) {
                return text;
            }
            format!("`{}`: {text}", cause.field)
        })
        .collect();
    if object.causes.len() > SHOWN {
        causes.push(format!("{} more", object.causes.len() - SHOWN));
    }
    causes.join("<br>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_a_row_of_the_table() {
        let line = r#"{"file":"d/a.yaml","index":0,"kind":"K","name":"n","verdict":"refused",
            "causes":[{"type":"T","field":"spec.a","message":"a | b"},{"type":"T","field":"spec.b","message":"spec.b is odd"},
            {"type":"T","field":"","message":"c"},{"type":"T","field":"","message":"d"}],"warnings":[],"ignored":[]}"#;
        let judged: Judged = serde_json::from_str(line).expect("a line");
        let complaints =
            "error: d/b.yaml, document at line 1:\n* spec: odd\nerror: d/b.yaml cannot be read\n";
        let page = page(&[judged], &unread(complaints), Path::new("d")).expect("a page");
        let row = page.lines().last().expect("a row");
        assert_eq!(
            row,
            "| a.yaml | K n | refused | `spec.a`: a \\| b<br>spec.b is odd<br>c<br>1 more |"
        );
        assert!(
            page.contains("- 0 accepted\n- 0 unsupported\n- 1 refused\n"),
            "{page}"
        );
        assert!(
            page.contains("- not readable as YAML: b.yaml, document at line 1: spec: odd\n"),
            "{page}"
        );
    }
}
