//! `kvmctl cordon` and `uncordon`.

use proto_node::node::{CordonRequest, Maintenance, UncordonRequest};
use tonic::Status;

use crate::args::{Cordon, DryRun};
use crate::client::Client;
use crate::failure::Failure;
use crate::output::{note, print_line};
use crate::scope::Scope;

/// Has the node start no guests.
pub async fn cordon(scope: &Scope, args: &Cordon) -> Result<(), Failure> {
    let mut client = Client::new(scope)?;
    let request = CordonRequest {
        node_name: node_name(args.node.as_deref()),
        dry_run: args.dry_run.is_on,
    };
    let response = client.maintenance().cordon(request).await;
    let response = response.map_err(|status| refusal(&client, &status))?;
    let node = response.into_inner();
    let name = full_name(node.maintenance.as_ref());
    let done = outcome_text("cordoned", node.changed, &args.dry_run);
    print_line(&format!("{name} {done}"))
}

/// Has the node start guests again.
pub async fn uncordon(scope: &Scope, args: &Cordon) -> Result<(), Failure> {
    let mut client = Client::new(scope)?;
    let request = UncordonRequest {
        node_name: node_name(args.node.as_deref()),
        dry_run: args.dry_run.is_on,
    };
    let response = client.maintenance().uncordon(request).await;
    let response = response.map_err(|status| refusal(&client, &status))?;
    let node = response.into_inner();
    let name = full_name(node.maintenance.as_ref());
    if node.changed && !args.dry_run.is_on {
        note("guests that are being stopped still end; `kvmctl get vmi -A` shows them");
    }
    let done = outcome_text("uncordoned", node.changed, &args.dry_run);
    print_line(&format!("{name} {done}"))
}

/// The outcome in kubectl's words.
pub fn outcome_text(done: &str, is_new: bool, dry_run: &DryRun) -> String {
    let already = if is_new { "" } else { "already " };
    format!("{already}{done}{}", dry_run.suffix())
}

/// The name that was typed, with or without its type.
pub fn node_name(typed: Option<&str>) -> String {
    let name = typed.unwrap_or_default();
    name.strip_prefix("node/").unwrap_or(name).to_owned()
}

/// The node, as output names it.
pub fn full_name(node: Option<&Maintenance>) -> String {
    format!("node/{}", node.map_or("", |node| node.node_name.as_str()))
}

/// What the agent answered.
pub fn refusal(client: &Client, status: &Status) -> Failure {
    Failure::of_status(status, "Node", "", client.address())
}
