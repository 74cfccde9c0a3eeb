//! Which kind `kvmctl explain` is asked for, and its fields: of the agent's descriptors, or of this release's where no
//! agent says.

use std::time::Duration;

use agent_objects::Kinds;
use proto_node::node::{DescribeKindRequest, ObjectKind};
use proto_node::{FieldDoc, Schema};
use tonic::{Code, Status};

use crate::agent_address::AgentAddress;
use crate::client::Client;
use crate::failure::Failure;
use crate::objects::is_called;
use crate::scope::Scope;

/// Time limit of the agent's answers: without them this release's are printed.
const PATIENCE: Duration = Duration::from_secs(3);

/// A kind with its fields.
pub struct ExplainedKind {
    pub group: String,
    pub kind: String,
    pub version: String,
    pub fields: Vec<FieldDoc>,
}

/// What an agent said.
enum Answer {
    Kind(ExplainedKind),
    /// Nothing, which is as usual: there is none here, or it is too old to say.
    Nothing,
    /// Nothing, for a reason that the reader should know.
    NothingBecause(String),
}

impl ExplainedKind {
    /// The kind that a word means, and what the reader should know of where it comes from.
    pub async fn find(mut scope: Scope, word: &str) -> Result<(Self, Option<String>), Failure> {
        let answer = match scope.complete().and_then(|()| Client::new(&scope)) {
            Ok(client) => {
                let asked = tokio::time::timeout(PATIENCE, of_agent(client, word)).await;
                let late = |_| Answer::NothingBecause(String::from("the agent does not answer"));
                asked.unwrap_or_else(late)
            }
            Err(failure) => Answer::NothingBecause(bare(&failure)),
        };
        let because = match answer {
            Answer::Kind(kind) => return Ok((kind, None)),
            Answer::Nothing => None,
            Answer::NothingBecause(why) => Some(why),
        };
        match Self::of_this_release(word) {
            Some(kind) => Ok((kind, because)),
            None => Err(unknown(word, because.as_deref())),
        }
    }

    /// A kind of this release.
    pub fn of_this_release(word: &str) -> Option<Self> {
        let lower = word.to_lowercase();
        let mut kinds = Kinds::this_release().all();
        let kind = kinds.find(|kind| {
            [kind.plural, kind.singular].contains(&lower.as_str())
                || kind.short_names.contains(&lower.as_str())
        })?;
        Some(Self {
            group: kind.group.to_owned(),
            kind: kind.kind.to_owned(),
            version: kind
                .versions
                .first()
                .copied()
                .unwrap_or_default()
                .to_owned(),
            fields: Schema::this_release().explain(kind.message),
        })
    }
}

fn unknown(word: &str, because: Option<&str>) -> Failure {
    let text = format!("couldn't find resource for {word:?}");
    Failure::refused(match because {
        Some(why) => format!("{text} in this release of kvmctl; {why}"),
        None => text,
    })
}

async fn of_agent(mut client: Client, word: &str) -> Answer {
    let kind = match client.kinds().await {
        Ok(kinds) => kinds.iter().find(|kind| is_called(kind, word)).cloned(),
        Err(status) => return nothing(&client, &status),
    };
    let Some(kind) = kind else {
        return Answer::NothingBecause(String::from("the agent does not serve this kind"));
    };
    let request = DescribeKindRequest {
        kind: kind.kind.clone(),
    };
    let described = client.objects().describe_kind(request).await;
    let described = match described {
        Ok(described) => described.into_inner(),
        Err(status) => return nothing(&client, &status),
    };
    match Schema::of_descriptors(&described.descriptors) {
        Ok(schema) => Answer::Kind(explained(kind, schema.explain(&described.message))),
        Err(why) => {
            Answer::NothingBecause(format!("the agent's descriptors are not legible: {why}"))
        }
    }
}

fn explained(kind: ObjectKind, fields: Vec<FieldDoc>) -> ExplainedKind {
    ExplainedKind {
        group: kind.group,
        kind: kind.kind,
        version: kind.versions.into_iter().next().unwrap_or_default(),
        fields,
    }
}

fn nothing(client: &Client, status: &Status) -> Answer {
    let is_absent = matches!(client.address(), AgentAddress::Socket(socket) if !socket.exists());
    if is_absent || status.code() == Code::Unimplemented {
        return Answer::Nothing;
    }
    Answer::NothingBecause(bare(&Failure::of_status(status, "", "", client.address())))
}

/// What a failure says, in the middle of a sentence.
fn bare(failure: &Failure) -> String {
    failure.to_string().trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_an_agent_this_release_explains_what_it_knows() {
        let at = |socket: &str| Scope {
            socket: Some(socket.into()),
            ..Scope::default()
        };
        let found = ExplainedKind::find(at("/nowhere/kvmlet.sock"), "VMI").await;
        let (kind, because) = found.unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(
            (kind.kind.as_str(), kind.version.as_str()),
            ("VirtualMachineInstance", "v1")
        );
        assert!(
            kind.fields
                .iter()
                .any(|field| field.path == "spec.domain.cpu")
        );
        assert_eq!(because, None, "there is no agent here");
        // Something is there that is no agent.
        let found = ExplainedKind::find(at("/dev/null"), "vmi").await;
        let (_, because) = found.unwrap_or_else(|failure| panic!("{failure}"));
        let because = because.unwrap_or_default();
        assert!(
            because.contains("cannot be reached at /dev/null"),
            "{because}"
        );
        let found = ExplainedKind::find(at("/nowhere/kvmlet.sock"), "gadget").await;
        let text = found.err().map(|failure| failure.to_string());
        assert_eq!(
            text.as_deref(),
            Some("error: couldn't find resource for \"gadget\"")
        );
    }
}
