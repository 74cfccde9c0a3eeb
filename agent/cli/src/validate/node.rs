//! The node that is judged for, as `kvmlet doctor -o json` describes it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use agent_domain::{CommonRelease, Lack, MissingFirmware, NodeCaps, PathGrant, PathRules, PodPool};
use serde::Deserialize;

use crate::failure::Failure;

/// What is known of a node.
pub struct JudgedNode {
    /// What admission judges by.
    pub caps: NodeCaps,
    /// Its common instance types and preferences.
    pub common: Option<CommonRelease>,
}

/// What a doctor's report says that admission judges by.
#[derive(Deserialize)]
struct Report {
    node: Node,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    name: String,
    architecture: String,
    max_vcpus: u32,
    memory_bytes: u64,
    networks: BTreeMap<String, String>,
    #[serde(default)]
    paths: Option<Paths>,
    /// Of agents that granted everything below these to everybody.
    #[serde(default)]
    allowed_dirs: Vec<PathBuf>,
    /// Of a doctor that knows of none, there is none.
    #[serde(default)]
    pod_network: Option<String>,
    #[serde(default)]
    allowed_dirs_setting: String,
    labels: BTreeMap<String, String>,
    refuse_substitution: bool,
    #[serde(default)]
    lacks_bios: Option<Missing>,
    #[serde(default)]
    lacks_efi: Option<Missing>,
    /// Of a doctor that does not say, the usual ones are there.
    #[serde(default)]
    common_instancetypes: Option<String>,
}

#[derive(Deserialize)]
struct Paths {
    disks: Vec<PathBuf>,
    boot: Vec<PathBuf>,
    grants: Vec<Granted>,
    setting: String,
}

#[derive(Deserialize)]
struct Granted {
    path: PathBuf,
    namespaces: BTreeSet<String>,
}

impl Node {
    fn path_rules(&self) -> PathRules {
        let Some(paths) = &self.paths else {
            return PathRules {
                disks: self.allowed_dirs.clone(),
                boot: self.allowed_dirs.clone(),
                setting: self.allowed_dirs_setting.clone(),
                ..PathRules::default()
            };
        };
        let grants = paths.grants.iter().map(|grant| PathGrant {
            path: grant.path.clone(),
            namespaces: grant.namespaces.clone(),
        });
        PathRules {
            disks: paths.disks.clone(),
            boot: paths.boot.clone(),
            grants: grants.collect(),
            setting: paths.setting.clone(),
            ..PathRules::default()
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Missing {
    why: String,
    way_out: String,
}

impl From<Missing> for Lack {
    fn from(Missing { why, way_out }: Missing) -> Self {
        Self { why, way_out }
    }
}

/// Reads a report.
pub fn read(path: &Path) -> Result<JudgedNode, Failure> {
    let failed = |why: String| {
        Failure::Unreadable(format!(
            "error: --node {}: {why} (`kvmlet doctor -o json` writes what belongs there)",
            path.display()
        ))
    };
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let Report { node } = serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
    let common = node.common_instancetypes.as_deref();
    let common = match common.unwrap_or(CommonRelease::Head.as_str()) {
        "none" => None,
        name => Some(CommonRelease::parse(name).ok_or_else(|| {
            failed(format!(
                "commonInstancetypes {name:?} is not known to this kvmctl"
            ))
        })?),
    };
    let paths = node.path_rules();
    let caps = NodeCaps {
        node_name: node.name,
        architecture: node.architecture,
        max_vcpus: node.max_vcpus,
        memory_bytes: node.memory_bytes,
        networks: node.networks,
        paths,
        pod_network: node.pod_network.as_deref().and_then(pool),
        labels: node.labels,
        refuse_substitution: node.refuse_substitution,
        firmware: MissingFirmware {
            bios: node.lacks_bios.map(Into::into),
            efi: node.lacks_efi.map(Into::into),
        },
    };
    Ok(JudgedNode { caps, common })
}

/// A network as the doctor writes it.
fn pool(text: &str) -> Option<PodPool> {
    let (network, prefix) = text.split_once('/')?;
    Some(PodPool {
        network: network.parse().ok()?,
        prefix: prefix.parse().ok()?,
        // No rule of manifests depends on it.
        network6: None,
    })
}
