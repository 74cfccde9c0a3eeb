//! Applying objects of any kind: the agent merges what was applied last, what is there and what is applied now.

use proto_node::node::{ApplyObjectRequest, ObjectName};
use tonic::{Code, Status};

use super::json::read;
use super::{is_unserved, placed, type_of};
use crate::apply::report::report_json;
use crate::args::Apply;
use crate::client::Client;
use crate::failure::Failure;
use crate::files::Sourced;
use crate::output::note;
use crate::scope::Scope;
use crate::text::text;

/// Applies one document. Returns what names the object.
pub async fn apply(
    client: &mut Client,
    scope: &Scope,
    args: &Apply,
    sourced: &Sourced,
) -> Result<ObjectName, Failure> {
    let applied = ask(client, scope, args, sourced).await?;
    applied.map_err(|status| {
        let name = &sourced.document.name;
        let failure = Failure::of_status(&status, &name.kind, &name.name, client.address());
        // The error of a kind that nobody serves has its place in the file.
        let unserved = is_unserved(&status).then(|| sourced.decode_failure());
        unserved.flatten().unwrap_or(failure)
    })
}

/// The same of a kind that was there before objects of any kind were. Nothing when the agent is that old.
pub async fn apply_if_served(
    client: &mut Client,
    scope: &Scope,
    args: &Apply,
    sourced: &Sourced,
) -> Result<Option<ObjectName>, Failure> {
    match ask(client, scope, args, sourced).await? {
        Ok(id) => Ok(Some(id)),
        Err(status) if status.code() == Code::Unimplemented => Ok(None),
        Err(status) => {
            let name = &sourced.document.name;
            let address = client.address();
            Err(Failure::of_status(&status, &name.kind, &name.name, address))
        }
    }
}

async fn ask(
    client: &mut Client,
    scope: &Scope,
    args: &Apply,
    sourced: &Sourced,
) -> Result<Result<ObjectName, Status>, Failure> {
    let object = placed(client, scope, sourced).await?;
    let request = ApplyObjectRequest {
        object: object.to_string().into_bytes(),
        dry_run: args.dry_run.is_on,
        field_manager: args.field_manager.clone(),
        ..ApplyObjectRequest::default()
    };
    let answer = match client.objects().apply_object(request).await {
        Ok(answer) => answer.into_inner(),
        Err(status) => return Ok(Err(status)),
    };
    for warning in &answer.warnings {
        note(&format!("Warning: {warning}"));
    }
    let object = read(&answer.object)?;
    let full_name = format!("{}/{}", type_of(&object), text(&object, "/metadata/name"));
    report_json(&object, &full_name, answer.result(), args)?;
    Ok(Ok(ObjectName {
        kind: text(&object, "/kind"),
        namespace: text(&object, "/metadata/namespace"),
        name: text(&object, "/metadata/name"),
    }))
}
