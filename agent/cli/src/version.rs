//! `kvmctl version`.

use serde_json::json;

use crate::args::Version;
use crate::client::Client;
use crate::failure::Failure;
use crate::output::{OutputFormat, guests, print, print_value};
use crate::scope::Scope;

const CLIENT: &str = env!("CARGO_PKG_VERSION");

/// Shows the versions of client and agent and of the VMMs that run.
pub async fn run(scope: &Scope, args: Version) -> Result<(), Failure> {
    let yaml = match args.output {
        None => None,
        Some(OutputFormat::Json) => Some(false),
        Some(OutputFormat::Yaml) => Some(true),
        Some(_) => return Err(Failure::Usage("version prints json or yaml".to_owned())),
    };
    let mut whole = json!({"clientVersion": CLIENT});
    let mut text = format!("Client Version: {CLIENT}\n");
    let mut failure = None;
    if !args.client {
        let mut client = Client::new(scope)?;
        match client.node_info().await {
            Ok(node) => {
                let releases: Vec<String> = node
                    .vmm_releases
                    .iter()
                    .map(|release| format!("{} ({})", release.version, guests(release.guests)))
                    .collect();
                text.push_str(&format!(
                    "Agent Version: {} on {} ({})\n",
                    node.agent_version, node.node_name, node.architecture
                ));
                if !releases.is_empty() {
                    text.push_str(&format!("Running VMMs: {}\n", releases.join(", ")));
                }
                let vmms: Vec<_> = node
                    .vmm_releases
                    .iter()
                    .map(|release| json!({"version": release.version, "guests": release.guests}))
                    .collect();
                whole["agentVersion"] = node.agent_version.into();
                whole["nodeName"] = node.node_name.into();
                whole["architecture"] = node.architecture.into();
                whole["features"] = node.features.into();
                whole["vmms"] = vmms.into();
            }
            // The client's own version is printed all the same.
            Err(status) => failure = Some(Failure::of_status(&status, "", "", client.address())),
        }
    }
    match yaml {
        Some(yaml) => print_value(&whole, yaml)?,
        None => print(&text)?,
    }
    failure.map_or(Ok(()), Err)
}
