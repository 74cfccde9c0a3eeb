//! `kvmctl api-resources`: the kinds that the agent serves.

use proto_node::node::{ListKindsRequest, ObjectKind};

use crate::args::ApiResources;
use crate::client::Client;
use crate::failure::Failure;
use crate::output::table::render;
use crate::output::{OutputFormat, print};
use crate::scope::Scope;

/// What can be done with objects that callers write, and with those that only the agent writes.
const VERBS: &str = "create,delete,get,list,patch,update,watch";
const VERBS_OF_AGENT: &str = "delete,get,list,watch";

/// Prints the table.
pub async fn run(scope: &Scope, args: &ApiResources) -> Result<(), Failure> {
    let mut client = Client::new(scope)?;
    let answer = client.objects().list_kinds(ListKindsRequest {}).await;
    let answer = answer.map_err(|status| Failure::of_status(&status, "", "", client.address()))?;
    let kinds = answer.into_inner().kinds.into_iter().filter(|kind| {
        let is_group = args
            .api_group
            .as_ref()
            .is_none_or(|group| *group == kind.group);
        is_group
            && args
                .namespaced
                .is_none_or(|wanted| wanted == kind.namespaced)
    });
    print(&page(kinds, args)?)
}

fn page(kinds: impl Iterator<Item = ObjectKind>, args: &ApiResources) -> Result<String, Failure> {
    let mut headings = vec!["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"];
    let is_wide = match &args.output {
        None => false,
        Some(OutputFormat::Wide) => true,
        Some(OutputFormat::Name) => {
            return Ok(kinds
                .map(|kind| format!("{}\n", full_plural(&kind)))
                .collect());
        }
        Some(_) => {
            let text = "api-resources prints wide or name".to_owned();
            return Err(Failure::Usage(text));
        }
    };
    if is_wide {
        headings.extend(["VERBS", "CATEGORIES"]);
    }
    let mut rows: Vec<Vec<String>> = Vec::new();
    if !args.no_headers {
        rows.push(headings.into_iter().map(str::to_owned).collect());
    }
    for kind in kinds {
        let mut row = vec![
            kind.plural.clone(),
            kind.short_names.join(","),
            api_version(&kind),
            kind.namespaced.to_string(),
            kind.kind.clone(),
        ];
        if is_wide {
            let verbs = if kind.agent_only {
                VERBS_OF_AGENT
            } else {
                VERBS
            };
            row.extend([verbs.to_owned(), kind.categories.join(",")]);
        }
        rows.push(row);
    }
    Ok(render(&rows))
}

fn api_version(kind: &ObjectKind) -> String {
    let version = kind.versions.first().cloned().unwrap_or_default();
    if kind.group.is_empty() {
        version
    } else {
        format!("{}/{version}", kind.group)
    }
}

fn full_plural(kind: &ObjectKind) -> String {
    if kind.group.is_empty() {
        kind.plural.clone()
    } else {
        format!("{}.{}", kind.plural, kind.group)
    }
}
