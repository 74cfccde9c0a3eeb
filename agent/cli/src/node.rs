//! `kvmctl get node`: the node whose agent is asked.

use serde_json::json;

use crate::args::Get;
use crate::client::Client;
use crate::failure::Failure;
use crate::maintenance::refusal;
use crate::output::table::render;
use crate::output::{OutputFormat, print, print_line, print_value};
use crate::scope::Scope;

/// Whether the words of `get` mean nodes.
pub fn is_meant(words: &[String]) -> bool {
    let kind = words.first().and_then(|word| word.split('/').next());
    matches!(kind, Some("node" | "nodes" | "no"))
}

/// Shows it.
pub async fn get(scope: &Scope, args: &Get) -> Result<(), Failure> {
    check(args)?;
    let mut client = Client::new(scope)?;
    let node = client.node_info().await;
    let node = node.map_err(|status| refusal(&client, &status))?;
    let name = node.node_name.clone();
    if let Some(other) = names(&args.what).find(|wanted| *wanted != name) {
        return Err(Failure::Refused(format!(
            "Error from server (NotFound): nodes {other:?} not found (this agent is that of {name:?})"
        )));
    }
    let json = || {
        json!({
            "name": node.node_name,
            "unschedulable": node.unschedulable,
            "agentVersion": node.agent_version,
            "architecture": node.architecture,
            "features": node.features,
            "maxVcpus": node.max_vcpus,
            "memoryBytes": node.memory_bytes,
            "networks": node.networks,
            "bootId": node.boot_id,
            "startedAt": node.started_at,
        })
    };
    match &args.output {
        Some(OutputFormat::Json) => print_value(&json(), false),
        Some(OutputFormat::Yaml) => print_value(&json(), true),
        Some(OutputFormat::JsonPath(template)) => print(&template.render(&json())),
        Some(OutputFormat::GoTemplate(template)) => {
            print(&template.render(&json()).map_err(Failure::refused)?)
        }
        Some(OutputFormat::Name) => print_line(&format!("node/{name}")),
        Some(OutputFormat::CustomColumns(_)) => Err(Failure::Usage(String::from(
            "get node has no custom-columns; -o jsonpath= picks what is wanted",
        ))),
        table => {
            let status = if node.unschedulable {
                "Ready,SchedulingDisabled"
            } else {
                "Ready"
            };
            let mut rows = [
                ["NAME", "STATUS", "VERSION"].map(str::to_owned).to_vec(),
                vec![name, status.to_owned(), node.agent_version.clone()],
            ];
            if table.is_some() {
                let more = ["MEMORY", "MAX-VCPUS", "BOOT-ID"].map(str::to_owned);
                let memory = format!("{}Mi", node.memory_bytes >> 20);
                let cells = [memory, node.max_vcpus.to_string(), node.boot_id.clone()];
                for (row, more) in rows.iter_mut().zip([more, cells]) {
                    row.extend(more);
                }
            }
            let from = usize::from(args.no_headers);
            print(&render(rows.get(from..).unwrap_or_default()))
        }
    }
}

/// Refuses what only lists of objects have.
fn check(args: &Get) -> Result<(), Failure> {
    let given = [
        ("--watch", args.watch),
        ("--selector", !args.selector.is_empty()),
        ("--field-selector", !args.field_selector.is_empty()),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => Err(Failure::Usage(format!(
            "get node takes no {option}: it shows the one node whose agent is asked, as it is now"
        ))),
        None => Ok(()),
    }
}

/// The names behind the type: `node web`, `node/web`.
fn names(words: &[String]) -> impl Iterator<Item = &str> {
    let bare = |(index, word): (usize, &'_ String)| index > 0 || word.contains('/');
    let named = words.iter().enumerate().filter(move |it| bare(*it));
    named.map(|(_, word)| word.split_once('/').map_or(word.as_str(), |(_, name)| name))
}
