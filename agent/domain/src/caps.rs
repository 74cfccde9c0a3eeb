//! What a node can do: facts and configuration that admission is judged by.

use std::collections::BTreeMap;

use crate::paths::PathRules;
use crate::pod::PodPool;

/// What a node can do. Filled in by the agent from its configuration and from the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCaps {
    /// Name of the node, for messages.
    pub node_name: String,
    /// KubeVirt's word for the architecture: `amd64`.
    pub architecture: String,
    /// The most vCPUs that a VMI may have.
    pub max_vcpus: u32,
    /// Memory of the node; a VMI that wants more waits for room.
    pub memory_bytes: u64,
    /// Networks of the configuration (`[networks.NAME]`): name to bridge.
    pub networks: BTreeMap<String, String>,
    /// Which paths of the host callers may name.
    pub paths: PathRules,
    /// The pod network; `None`: the configuration switches it off.
    pub pod_network: Option<PodPool>,
    /// Labels of the node, for `nodeSelector`.
    pub labels: BTreeMap<String, String>,
    /// Refuse devices that would be substituted (`deviceSubstitution: Refuse`).
    pub refuse_substitution: bool,
    /// Firmware that the node lacks.
    pub firmware: MissingFirmware,
}

/// Firmware that a node lacks; `None`: it is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingFirmware {
    /// The image of a BIOS (SeaBIOS).
    pub bios: Option<Lack>,
    /// UEFI, with a template of its variables.
    pub efi: Option<Lack>,
}

/// Something that a node lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// What is missing or wrong, with its path.
    pub why: String,
    /// What an administrator can do about it.
    pub way_out: String,
}
