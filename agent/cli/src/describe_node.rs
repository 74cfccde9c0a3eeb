//! `kvmctl describe node`: how much the node has for guests, and how much of it they have.

use proto_node::node::{DedicatedCpus, GetNodeInfoResponse, NodeResources};

use crate::client::Client;
use crate::failure::Failure;
use crate::output::print;
use crate::output::table::render;
use crate::scope::Scope;

/// Whether this is what is asked for.
pub fn is_meant(what: &[String]) -> bool {
    let first = what.first().map(String::as_str).unwrap_or_default();
    let kind = first.split('/').next().unwrap_or_default();
    matches!(kind, "no" | "node" | "nodes")
}

/// Describes the node that is asked.
pub async fn run(scope: &Scope, what: &[String]) -> Result<(), Failure> {
    let mut client = Client::new(scope)?;
    let info = client
        .node_info()
        .await
        .map_err(|status| Failure::of_status(&status, "", "", client.address()))?;
    let mut named = what.iter().flat_map(|word| word.split('/')).skip(1);
    if let Some(other) = named.find(|name| **name != info.node_name) {
        return Err(Failure::Refused(format!(
            "Error from server (NotFound): nodes {other:?} not found (this agent is that of {:?})",
            info.node_name
        )));
    }
    print(&describe(&info))
}

fn describe(info: &GetNodeInfoResponse) -> String {
    let mut head = String::new();
    for (label, value) in [
        ("Name", info.node_name.clone()),
        ("Version", info.agent_version.clone()),
        ("Architecture", info.architecture.clone()),
        ("Boot ID", info.boot_id.clone()),
        ("Started", info.started_at.clone()),
        ("VMIs", info.vmis.to_string()),
    ] {
        head.push_str(&format!("{:<14}{value}\n", format!("{label}:")));
    }
    let mut text = format!("{head}\n{}", render(&rows(info)));
    if !info.dedicated_cpus.is_empty() {
        text.push_str(&format!("\n{}", render(&holders(&info.dedicated_cpus))));
    }
    text
}

/// Guests with CPUs of their own.
fn holders(all: &[DedicatedCpus]) -> Vec<Vec<String>> {
    let heading = ["NAMESPACE", "NAME", "VCPUS-ON", "EMULATOR-ON"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(all.iter().map(|cpus| {
        let emulator = if cpus.emulator.is_empty() {
            &cpus.vcpus
        } else {
            &cpus.emulator
        };
        let cells = [&cpus.namespace, &cpus.name, &cpus.vcpus, emulator];
        cells.map(String::clone).to_vec()
    }));
    rows
}

/// One line a resource: what the node has of it, what is for guests, what they have.
fn rows(info: &GetNodeInfoResponse) -> Vec<Vec<String>> {
    let (capacity, allocatable, used) = views(info);
    let mut rows = vec![
        ["RESOURCE", "CAPACITY", "ALLOCATABLE", "REQUESTED"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let mut row = |resource: &str, cells: [String; 3]| {
        let mut row = vec![resource.to_owned()];
        row.extend(cells);
        rows.push(row);
    };
    let views = [&capacity, &allocatable, &used];
    row("cpu", views.map(|view| cpus(view.cpu_millis)));
    row("memory", views.map(|view| size(view.memory_bytes)));
    row(
        "dedicated-cpus",
        views.map(|view| {
            if view.dedicated_cpus.is_empty() {
                "<none>".to_owned()
            } else {
                view.dedicated_cpus.clone()
            }
        }),
    );
    for page in capacity.hugepages_bytes.keys() {
        let of = |view: &NodeResources| view.hugepages_bytes.get(page).copied().unwrap_or(0);
        row(
            &format!("hugepages-{page}"),
            views.map(|view| size(of(view))),
        );
    }
    rows
}

fn views(info: &GetNodeInfoResponse) -> (NodeResources, NodeResources, NodeResources) {
    (
        info.capacity.clone().unwrap_or_default(),
        info.allocatable.clone().unwrap_or_default(),
        info.used.clone().unwrap_or_default(),
    )
}

/// Thousandths as Kubernetes writes them.
fn cpus(millis: u64) -> String {
    if millis.is_multiple_of(1000) {
        (millis / 1000).to_string()
    } else {
        format!("{millis}m")
    }
}

/// Bytes, as whole as they are.
fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")];
    let unit = UNITS
        .iter()
        .find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit));
    unit.map_or_else(
        || bytes.to_string(),
        |(unit, name)| format!("{}{name}", bytes / unit),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn resources_of(memory_bytes: u64, cpu_millis: u64, dedicated: &str) -> NodeResources {
        NodeResources {
            memory_bytes,
            cpu_millis,
            dedicated_cpus: dedicated.to_owned(),
            hugepages_bytes: BTreeMap::from([("2Mi".to_owned(), 4 << 20)]),
        }
    }

    #[test]
    fn a_node_is_described_in_kubernetes_units() {
        let info = GetNodeInfoResponse {
            node_name: "node1".to_owned(),
            capacity: Some(resources_of(24 << 30, 4000, "2-3")),
            allocatable: Some(resources_of(23 << 30, 2000, "2-3")),
            used: Some(resources_of(65 << 20, 250, "")),
            dedicated_cpus: vec![DedicatedCpus {
                namespace: "default".to_owned(),
                name: "web".to_owned(),
                vcpus: "2-3".to_owned(),
                ..DedicatedCpus::default()
            }],
            ..GetNodeInfoResponse::default()
        };
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let text = describe(&info);
        let text: Vec<String> = text.lines().skip(7).map(words).collect();
        assert_eq!(
            text,
            [
                "RESOURCE CAPACITY ALLOCATABLE REQUESTED",
                "cpu 4 2 250m",
                "memory 24Gi 23Gi 65Mi",
                "dedicated-cpus 2-3 2-3 <none>",
                "hugepages-2Mi 4Mi 4Mi 4Mi",
                "",
                "NAMESPACE NAME VCPUS-ON EMULATOR-ON",
                "default web 2-3 2-3",
            ]
        );
        assert!(is_meant(&["nodes".to_owned()]) && is_meant(&["node/node1".to_owned()]));
        assert!(!is_meant(&["vmi".to_owned(), "node".to_owned()]));
    }
}
