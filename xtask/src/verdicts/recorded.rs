//! What KubeVirt v1.7.0 says of the examples, and where the verdicts differ from it. `agent/domain/tests/kubevirt/recorder` wrote it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, ensure};
use serde::Deserialize;

use super::judged::Judged;

const RECORDED: &str = include_str!("../../../agent/cli/tests/admission/examples.jsonl");

/// What a cluster with KubeVirt says of one object.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    file: String,
    index: usize,
    refused: bool,
    /// Fields that it refuses.
    #[serde(default)]
    paths: Vec<String>,
    /// Why the verdict here is another.
    #[serde(default)]
    otherwise: String,
    /// Why other fields are refused here.
    #[serde(default)]
    later: String,
}

fn answers() -> anyhow::Result<Vec<Answer>> {
    let lines = RECORDED.lines();
    let answers = lines.map(|line| serde_json::from_str(line).with_context(|| line.to_owned()));
    answers.collect()
}

/// Compares verdicts on manifests below a directory with what KubeVirt says.
///
/// # Errors
/// A verdict, or the fields that are refused, are others than KubeVirt's, and no line of the recording says why.
pub(super) fn check(judged: &[Judged], directory: &Path) -> anyhow::Result<()> {
    let wrong = differences(judged, directory, &answers()?);
    ensure!(
        wrong.is_empty(),
        "verdicts are not those of KubeVirt:\n{}",
        wrong.join("\n")
    );
    Ok(())
}

fn differences(judged: &[Judged], directory: &Path, answers: &[Answer]) -> Vec<String> {
    let mut found = BTreeMap::new();
    for object in judged {
        let file = Path::new(&object.file);
        let file = file.strip_prefix(directory).unwrap_or(file);
        found.insert((file.display().to_string(), object.index), object);
    }
    let mut wrong = Vec::new();
    for answer in answers {
        let place = format!("{}, object {}", answer.file, answer.index);
        let Some(object) = found.get(&(answer.file.clone(), answer.index)) else {
            wrong.push(format!("{place}: has no verdict"));
            continue;
        };
        let is_same = (object.verdict == "refused") == answer.refused;
        match (is_same, answer.otherwise.is_empty()) {
            (true, true) => {}
            (false, false) => continue,
            (true, false) => wrong.push(format!("{place}: is as KubeVirt has it by now")),
            (false, true) => {
                let says = if answer.refused { "refuses" } else { "takes" };
                wrong.push(format!(
                    "{place}: {}, and KubeVirt {says} it",
                    object.verdict
                ));
                continue;
            }
        }
        if answer.later.is_empty() {
            let unnamed = answer.paths.iter().filter(|path| !names(object, path));
            wrong.extend(unnamed.map(|path| format!("{place}: no cause is at {path}")));
        }
    }
    wrong
}

/// Whether an object is refused at a field. Forms are complained of without indexes of lists, and of what is no object at all
/// nothing within is.
fn names(object: &Judged, path: &str) -> bool {
    object.causes.iter().any(|cause| {
        cause.field == path
            || cause.message.starts_with(&format!("{path} in body"))
            || cause
                .message
                .starts_with(&format!("unknown field {path:?}"))
            || (!cause.field.is_empty() && path.starts_with(&format!("{}.", cause.field)))
    })
}

#[cfg(test)]
mod tests {
    use super::super::judged::Cause;
    use super::*;

    fn judged(verdict: &str, field: &str) -> Judged {
        Judged {
            file: String::from("d/a.yaml"),
            index: 0,
            kind: String::from("K"),
            name: String::from("n"),
            verdict: verdict.to_owned(),
            causes: vec![Cause {
                field: field.to_owned(),
                message: String::from("is odd"),
            }],
        }
    }

    fn differences_of(judged: &Judged, answer: &str) -> Vec<String> {
        let mut answer: serde_json::Value = serde_json::from_str(answer).expect("an answer");
        answer["file"] = "a.yaml".into();
        answer["index"] = 0.into();
        let answer = serde_json::from_value(answer).expect("an answer");
        differences(std::slice::from_ref(judged), Path::new("d"), &[answer])
    }

    #[test]
    fn verdicts_are_those_of_kubevirt_with_its_fields() {
        let refused = r#"{"refused": true, "paths": ["spec.a"]}"#;
        assert_eq!(
            differences_of(&judged("refused", "spec.a"), refused),
            [""; 0]
        );
        assert_eq!(
            differences_of(&judged("refused", "spec.b"), refused),
            ["a.yaml, object 0: no cause is at spec.a"]
        );
        assert_eq!(
            differences_of(&judged("unsupported", "spec.a"), refused),
            ["a.yaml, object 0: unsupported, and KubeVirt refuses it"]
        );
        let taken = r#"{"refused": false}"#;
        assert_eq!(differences_of(&judged("unsupported", ""), taken), [""; 0]);
        assert_eq!(
            differences_of(&judged("refused", ""), taken),
            ["a.yaml, object 0: refused, and KubeVirt takes it"]
        );
        let known = r#"{"refused": true, "otherwise": "a reason"}"#;
        assert_eq!(differences_of(&judged("accepted", ""), known), [""; 0]);
        assert_eq!(
            differences_of(&judged("refused", ""), known),
            ["a.yaml, object 0: is as KubeVirt has it by now"]
        );
    }

    /// The page is compared without the manifests, which only some have.
    #[test]
    fn the_page_has_the_verdicts_of_kubevirt() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let page = std::fs::read_to_string(root.join(super::super::PAGE)).expect("the page");
        let mut verdicts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for row in page
            .lines()
            .skip_while(|line| !line.starts_with("| ---"))
            .skip(1)
        {
            let cells: Vec<&str> = row.split(" | ").collect();
            let file = cells[0].trim_start_matches("| ");
            verdicts.entry(file).or_default().push(cells[2]);
        }
        let answers = answers().expect("answers");
        assert!(answers.len() > 70, "{}", answers.len());
        for answer in answers {
            let found = verdicts.get(answer.file.as_str());
            let verdict = found.and_then(|all| all.get(answer.index));
            let is_refused = verdict.map(|verdict| *verdict == "refused");
            let wanted = answer.refused && answer.otherwise.is_empty();
            assert_eq!(is_refused, Some(wanted), "{}", answer.file);
        }
    }
}
