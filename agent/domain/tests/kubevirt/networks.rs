//! Networks and interfaces: objects with one or a few mistakes each, and what KubeVirt 1.9's validation of networks says of them.

use std::collections::BTreeSet;

use agent_domain::{Bound, Vmi};
use proto_node::{Node, from_node};
use serde::Deserialize;
use serde_json::Value;

#[path = "../common/node_caps.rs"]
mod node_caps;

/// An object and KubeVirt's causes.
#[derive(Deserialize)]
struct Recorded {
    object: Value,
    causes: Vec<Cause>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Cause {
    #[serde(rename = "type")]
    kind: String,
    field: String,
    message: String,
}

/// What is judged elsewhere under KubeVirt.
fn is_of_networks(field: &str) -> bool {
    let begins = |prefix: &str| field.starts_with(prefix);
    begins("spec.networks")
        || begins("spec.domain.devices.interfaces")
        || begins("spec.interfaces")
        || field == "spec"
}

/// Ours, of the same part of the object, as far as they are KubeVirt's rules.
fn causes(object: &Value) -> BTreeSet<Cause> {
    let vmi = from_node(&Node::from(object.clone())).unwrap();
    let errors = Vmi::admit(vmi, &node_caps::caps())
        .err()
        .unwrap_or_default();
    // Of what older releases of KubeVirt take, this one says that it is not supported.
    let is_of_later = |message: &str| message.contains("exactly one binding method");
    let of_api = errors
        .into_iter()
        .filter(|error| error.bound == Bound::Api || is_of_later(&error.message));
    let causes = of_api.map(|error| Cause {
        kind: error.rule.cause().to_owned(),
        field: error.path,
        message: error.message,
    });
    // KubeVirt leaves it to libvirt that no two devices have one address.
    let is_of_libvirt = |cause: &Cause| cause.message.ends_with("asks for it too");
    causes
        .filter(|cause| is_of_networks(&cause.field) && !is_of_libvirt(cause))
        .collect()
}

/// Whether each network has one type and a name of its own that some interface has, and one at most is the pod's. What is wrong with one that is refused for
/// something else is not said here.
fn are_sound(spec: &Value) -> bool {
    let of = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let networks = of(&spec["networks"]);
    let interfaces = of(&spec["domain"]["devices"]["interfaces"]);
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let names: BTreeSet<String> = networks.iter().map(name).collect();
    let has_one_type = |network: &Value| {
        let multus = &network["multus"];
        network["pod"].is_null() != multus.is_null() && multus["networkName"] != ""
    };
    let of_pod = networks.iter().filter(|network| !network["pod"].is_null());
    names.len() == networks.len()
        && of_pod.count() <= 1
        && networks.iter().all(has_one_type)
        && interfaces.iter().map(name).collect::<BTreeSet<_>>() == names
}

#[test]
fn what_kubevirt_says_of_networks_is_said_of_them() {
    let recorded: Vec<Recorded> = super::lines(include_bytes!("networks.jsonl.zst"));
    assert!(recorded.len() > 400, "{}", recorded.len());
    let (mut differences, mut compared) = (BTreeSet::new(), 0);
    for Recorded {
        object,
        causes: theirs,
    } in recorded
    {
        let ours = causes(&object);
        let theirs: BTreeSet<Cause> = theirs.into_iter().collect();
        let spec = &object["spec"];
        if !are_sound(spec) {
            assert_eq!(ours.is_empty(), theirs.is_empty(), "{spec}");
            continue;
        }
        compared += 1;
        for cause in theirs.difference(&ours) {
            differences.insert(format!("only KubeVirt: {cause:?}"));
        }
        for cause in ours.difference(&theirs) {
            differences.insert(format!("only here: {cause:?} of {spec}"));
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
    assert!(compared > 250, "{compared}");
}
