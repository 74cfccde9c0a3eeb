//! `kvmctl create preference`.

use serde_json::{Map, Value, json};

use super::instancetype::is_namespaced;
use super::manifest::{metadata, object};
use super::params::flag_error;
use crate::args::CreatePreference;
use crate::failure::Failure;
use crate::names;

/// What is known of; the old words are taken, too.
const TOPOLOGIES: [&str; 10] = [
    "sockets",
    "cores",
    "threads",
    "spread",
    "any",
    "preferSockets",
    "preferCores",
    "preferThreads",
    "preferSpread",
    "preferAny",
];

/// The manifest that flags stand for.
pub fn manifest(args: &CreatePreference, namespace: Option<&str>) -> Result<Value, Failure> {
    let is_namespaced = is_namespaced(args.namespaced.as_deref(), namespace)?;
    let mut spec = Map::new();
    if let Some(topology) = &args.cpu_topology {
        if !TOPOLOGIES.contains(&topology.as_str()) {
            let why = "CPU topology must have a value of sockets, cores, threads or spread";
            return Err(flag_error("cpu-topology", why));
        }
        spec.insert("cpu".to_owned(), json!({"preferredCPUTopology": topology}));
    }
    let mut group = |name: &str, member: &str, value: &Option<String>| {
        let Some(value) = value else {
            return;
        };
        let mut members = Map::new();
        if !value.is_empty() {
            members.insert(member.to_owned(), value.as_str().into());
        }
        spec.insert(name.to_owned(), members.into());
    };
    group("machine", "preferredMachineType", &args.machine_type);
    group(
        "volumes",
        "preferredStorageClassName",
        &args.volume_storage_class,
    );
    let (kind, prefix) = if is_namespaced {
        ("VirtualMachinePreference", "preference-")
    } else {
        ("VirtualMachineClusterPreference", "clusterpreference-")
    };
    let name = match &args.name {
        Some(name) => name.clone(),
        None => names::random(prefix)?,
    };
    Ok(object(kind, metadata(&name, namespace), spec.into()))
}
