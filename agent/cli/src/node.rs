//! `kvmctl get node`: how much the node has for guests, and how much of it they have.

use proto_node::node::{DedicatedCpus, GetNodeInfoResponse, NodeResources};
use serde_json::{Value, json};

use crate::args::Get;
use crate::client::Client;
use crate::failure::Failure;
use crate::output::table::render;
use crate::output::{OutputFormat, print, print_line, print_value};
use crate::scope::Scope;

/// Whether this is what is asked for.
pub fn is_meant(what: &[String]) -> bool {
    let first = what.first().map(String::as_str).unwrap_or_default();
    let kind = first.split('/').next().unwrap_or_default();
    matches!(kind, "no" | "node" | "nodes")
}

/// Shows the node that is asked.
pub async fn get(scope: &Scope, args: &Get) -> Result<(), Failure> {
    let mut client = Client::new(scope)?;
    let info = client
        .node_info()
        .await
        .map_err(|status| Failure::of_status(&status, "", "", client.address()))?;
    let named = args.what.iter().flat_map(|word| word.split('/')).skip(1);
    if let Some(other) = named.into_iter().find(|name| **name != info.node_name) {
        return Err(Failure::Refused(format!(
            "Error from server (NotFound): nodes {other:?} not found (this is {:?})",
            info.node_name
        )));
    }
    match &args.output {
        None | Some(OutputFormat::Wide) => {
            let rows = rows(&info);
            print(&render(
                rows.get(usize::from(args.no_headers)..).unwrap_or_default(),
            ))
        }
        Some(OutputFormat::Json) => print_value(&whole(&info), false),
        Some(OutputFormat::Yaml) => print_value(&whole(&info), true),
        Some(OutputFormat::Name) => print_line(&format!("node/{}", info.node_name)),
        Some(OutputFormat::JsonPath(template)) => print(&template.render(&whole(&info))),
        Some(OutputFormat::CustomColumns(_)) => Err(Failure::Usage(
            "a node is printed as wide, json, yaml, name or jsonpath".to_owned(),
        )),
    }
}

/// One line a resource: what the node has of it, what is for guests, what they have.
fn rows(info: &GetNodeInfoResponse) -> Vec<Vec<String>> {
    let (capacity, allocatable, used) = views(info);
    let mut rows = vec![
        ["NODE", "RESOURCE", "CAPACITY", "ALLOCATABLE", "REQUESTED"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let mut row = |resource: &str, cells: [String; 3]| {
        let mut row = vec![info.node_name.clone(), resource.to_owned()];
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

/// In the shape of Kubernetes' Node, as far as there is one.
fn whole(info: &GetNodeInfoResponse) -> Value {
    let (capacity, allocatable, used) = views(info);
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": info.node_name},
        "status": {
            "capacity": resources(&capacity),
            "allocatable": resources(&allocatable),
            "requested": resources(&used),
            "virtualMachineInstances": info.vmis,
            "dedicatedCPUs": info.dedicated_cpus.iter().map(holder).collect::<Vec<_>>(),
            "nodeInfo": {
                "architecture": info.architecture,
                "bootID": info.boot_id,
                "kvmletVersion": info.agent_version,
            },
        },
    })
}

fn resources(view: &NodeResources) -> Value {
    let mut all = json!({
        "cpu": cpus(view.cpu_millis),
        "memory": size(view.memory_bytes),
        "dedicated-cpus": view.dedicated_cpus,
    });
    for (page, bytes) in &view.hugepages_bytes {
        all[format!("hugepages-{page}")] = size(*bytes).into();
    }
    all
}

fn holder(cpus: &DedicatedCpus) -> Value {
    json!({
        "namespace": cpus.namespace,
        "name": cpus.name,
        "uid": cpus.uid,
        "vcpus": cpus.vcpus,
        "emulator": cpus.emulator,
    })
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
    fn a_node_is_told_in_kubernetes_units() {
        let info = GetNodeInfoResponse {
            node_name: "node1".to_owned(),
            capacity: Some(resources_of(24 << 30, 4000, "2-3")),
            allocatable: Some(resources_of(23 << 30, 2000, "2-3")),
            used: Some(resources_of(65 << 20, 250, "")),
            ..GetNodeInfoResponse::default()
        };
        let text: Vec<String> = rows(&info).iter().map(|row| row.join(" ")).collect();
        assert_eq!(
            text,
            [
                "NODE RESOURCE CAPACITY ALLOCATABLE REQUESTED",
                "node1 cpu 4 2 250m",
                "node1 memory 24Gi 23Gi 65Mi",
                "node1 dedicated-cpus 2-3 2-3 <none>",
                "node1 hugepages-2Mi 4Mi 4Mi 4Mi",
            ]
        );
        let whole = whole(&info);
        assert_eq!(whole["status"]["requested"]["memory"], "65Mi");
        assert!(is_meant(&["nodes".to_owned()]) && is_meant(&["node/node1".to_owned()]));
        assert!(!is_meant(&["vmi".to_owned(), "node".to_owned()]));
    }
}
