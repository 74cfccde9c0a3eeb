//! What a VMI says when its manifest says nothing, as KubeVirt fills it in (`pkg/defaults`): before an instance type and a
//! preference are applied, since they hold for devices that are there by default, and after.

use serde_json::{Value, json};

use super::tree::{Tree, number, text};
use crate::admit::image_reference::default_pull_policy;
use crate::quantity::Quantity;

/// Name of the default network and of its interface.
const DEFAULT_NETWORK: &str = "default";

/// A machine without networks and interfaces gets the pod network, unless it does not want it.
pub(super) fn attach_network(spec: &mut Value) {
    let devices = ["domain", "devices"];
    let is_wanted = spec
        .found(&["domain", "devices", "autoattachPodInterface"])
        .and_then(Value::as_bool);
    let is_listed = |list: Option<&Value>| {
        let items = list.and_then(Value::as_array);
        items.is_some_and(|items| !items.is_empty())
    };
    let says_something = is_listed(spec.found(&["networks"]))
        || is_listed(spec.found(&["domain", "devices", "interfaces"]));
    if is_wanted == Some(false) || says_something {
        return;
    }
    spec.set(
        &devices,
        "interfaces",
        json!([{"name": DEFAULT_NETWORK, "masquerade": {}}]),
    );
    spec.set(
        &[],
        "networks",
        json!([{"name": DEFAULT_NETWORK, "pod": {}}]),
    );
}

/// A volume that no disk names gets one, so that preferences of disks hold for it.
pub(super) fn attach_volumes(template: &mut Value) {
    let names = |list: Option<&Value>| -> Vec<Value> {
        let items = list.and_then(Value::as_array).into_iter().flatten();
        items.filter_map(|item| item.get("name").cloned()).collect()
    };
    let devices = ["spec", "domain", "devices"];
    let mut used = names(template.found(&["spec", "domain", "devices", "disks"]));
    used.extend(names(template.found(&[
        "spec",
        "domain",
        "devices",
        "filesystems",
    ])));
    let volumes = template
        .found(&["spec", "volumes"])
        .and_then(Value::as_array);
    let idle: Vec<Value> = volumes
        .into_iter()
        .flatten()
        .filter(|volume| volume.get("memoryDump").is_none())
        .filter_map(|volume| {
            volume
                .get("name")
                .filter(|name| !used.contains(name))
                .cloned()
        })
        .collect();
    if idle.is_empty() {
        return;
    }
    let disks = template.made(&devices).made_list("disks");
    disks.extend(idle.into_iter().map(|name| json!({"name": name})));
}

/// Fills in what is left open in the spec of a VMI.
pub(crate) fn fill_in_defaults(spec: &mut Value) {
    spec.fill(&[], "architecture", Some(&json!("amd64")));
    let machine = machine_type(text(spec.found(&["architecture"])));
    fill_text(spec, &["domain", "machine"], "type", machine);
    fill_requests(spec);
    fill_memory(spec);
    fill_topology(spec);
    fill_pull_policies(spec);
    spec.fill(&[], "evictionStrategy", Some(&json!("None")));
}

/// The machine that an architecture has, also one that no node of this release is of.
pub(crate) fn machine_type(architecture: &str) -> &'static str {
    match architecture {
        "arm64" => "virt",
        "s390x" => "s390-ccw-virtio",
        _ => "q35",
    }
}

/// Sets a text that is absent or empty.
fn fill_text(spec: &mut Value, path: &[&str], name: &str, value: &str) {
    let given = spec.found(path).and_then(|object| object.found(&[name]));
    if text(given).is_empty() {
        spec.set(path, name, json!(value));
    }
}

/// A limit of CPU without a request is the request, too.
fn fill_requests(spec: &mut Value) {
    let limit = spec
        .found(&["domain", "resources", "limits", "cpu"])
        .cloned();
    spec.fill(&["domain", "resources", "requests"], "cpu", limit.as_ref());
}

/// The guest has the memory that is requested for it, else one huge page.
fn fill_memory(spec: &mut Value) {
    let given = [
        spec.found(&["domain", "resources", "requests", "memory"]),
        spec.found(&["domain", "resources", "limits", "memory"]),
        spec.found(&["domain", "memory", "hugepages", "pageSize"]),
    ];
    let size = given
        .into_iter()
        .flatten()
        .find(|size| !text(Some(size)).is_empty());
    let size = size.cloned();
    spec.fill(&["domain", "memory"], "guest", size.as_ref());
}

/// A topology that is not given has as many sockets as whole CPUs are requested.
fn fill_topology(spec: &mut Value) {
    let members = ["sockets", "cores", "threads"];
    let count = |spec: &Value, name: &str| number(spec.found(&["domain", "cpu", name]));
    if members.iter().any(|name| count(spec, name) != 0) {
        return;
    }
    let sockets = ["limits", "requests"]
        .into_iter()
        .find_map(|list| spec.found(&["domain", "resources", list, "cpu"]))
        .and_then(|given| Quantity::parse(text(Some(given)))?.units())
        .unwrap_or(1);
    for (name, value) in members.into_iter().zip([sockets, 1, 1]) {
        spec.set(&["domain", "cpu"], name, json!(value));
    }
}

/// Images that may change under their name are pulled at each start.
fn fill_pull_policies(spec: &mut Value) {
    let volumes = spec.get_mut("volumes").and_then(Value::as_array_mut);
    for volume in volumes.into_iter().flatten() {
        let Some(disk) = volume
            .get_mut("containerDisk")
            .filter(|disk| disk.is_object())
        else {
            continue;
        };
        if let Some(policy) = default_pull_policy(text(disk.found(&["image"]))) {
            fill_text(disk, &[], "imagePullPolicy", policy);
        }
    }
}
