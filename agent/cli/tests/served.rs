//! `kvmctl validate` against all that stands between a manifest and a cluster with KubeVirt v1.7: the kinds and versions that
//! are served, strict decoding, metadata and form as an API server judges them by KubeVirt's CRDs, and KubeVirt's webhooks.
//! The answers are recorded by `agent/domain/tests/kubevirt/recorder`; each mistake for which a manifest of
//! `docs/kubevirt-examples.md` is refused is among them.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "support/judged.rs"]
mod judged;

use serde::Deserialize;
use serde_json::Value;

use judged::{Cause, Judged};

/// An object, and the first step that refuses it.
#[derive(Deserialize)]
struct Served {
    object: Value,
    /// No version of the kind is served.
    #[serde(default, rename = "noMatch")]
    no_match: bool,
    /// Fields that strict decoding does not know.
    #[serde(default)]
    unknown: Vec<String>,
    /// What is wrong with metadata and form, as `FIELD: RULE ...`.
    #[serde(default)]
    form: Vec<String>,
    /// What the webhooks say.
    #[serde(default)]
    causes: Vec<Cause>,
    /// The same, of what has no form.
    #[serde(default)]
    error: String,
}

/// What later releases of KubeVirt say, and we with them.
const LATER: [(&str, &str); 1] = [(
    "Macvtap network binding is discontinued since v1.3. Please refer to Kubevirt user guide for alternatives.",
    "Macvtap network binding has been discontinued since v1.3",
)];

impl Served {
    fn is_taken(&self) -> bool {
        let texts = [&self.unknown, &self.form];
        !self.no_match
            && texts.iter().all(|texts| texts.is_empty())
            && self.causes.is_empty()
            && self.error.is_empty()
    }

    /// What of it is not among our causes.
    fn missing(&self, ours: &[Cause]) -> Vec<String> {
        let mut missing = Vec::new();
        let mut want = |is_said: bool, what: &str| {
            if !is_said {
                missing.push(what.to_owned());
            }
        };
        let begins = |text: &str| ours.iter().any(|it| it.message.starts_with(text));
        want(!self.no_match || begins("no matches for kind"), "no match");
        for field in &self.unknown {
            // A field of what must be a list is one of what has no form.
            let is_within = |it: &Cause| field.starts_with(&format!("{}.", it.field));
            let has_no_form = ours.iter().any(|it| !it.field.is_empty() && is_within(it));
            want(
                has_no_form || begins(&format!("unknown field {field:?}")),
                field,
            );
        }
        for text in &self.form {
            let (field, _) = text.split_once(": ").unwrap();
            let is_at = |it: &Cause| {
                it.field == field || it.message.starts_with(&format!("{field} in body"))
            };
            want(ours.iter().any(is_at), text);
        }
        for cause in &self.causes {
            let is_at = |it: &Cause| cause.field.is_empty() || it.field == cause.field;
            let later = LATER.iter().find(|(known, _)| *known == cause.message);
            let wanted = later.map_or(cause.message.as_str(), |(_, later)| later);
            let is_same = |it: &Cause| it.message == wanted && is_at(it);
            want(ours.iter().any(is_same), &cause.message);
        }
        missing
    }
}

#[test]
fn what_a_cluster_refuses_is_refused_for_the_same_reason() {
    let lines = include_str!("admission/served.jsonl").lines();
    let served: Vec<Served> = lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let judged = judged::judged(served.iter().map(|it| &it.object));
    assert_eq!(judged.len(), served.len());
    let (mut wrong, mut refused) = (Vec::new(), 0);
    for (index, served) in served.iter().enumerate() {
        let Judged {
            verdict, causes, ..
        } = &judged[&index];
        let missing = served.missing(causes);
        if (verdict == "refused") == served.is_taken() || !missing.is_empty() {
            let object = &served.object;
            wrong.push(format!(
                "{object}\nmissing: {missing:?}\nhere: {verdict} {causes:?}\n"
            ));
        }
        refused += usize::from(!served.is_taken());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(refused > 40, "{refused}");
}
