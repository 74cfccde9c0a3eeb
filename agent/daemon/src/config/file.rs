//! The configuration as its file has it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use super::capacity::Capacity;
use super::control_plane::ControlPlaneConfig;
use super::grpc::{Grant, Grpc};
use super::hooks::Hooks;
use super::images::Images;
use super::instancetypes::Instancetypes;
use super::pod_network::PodNetwork;
use super::sections::{
    Console, Debug, Firmware, Kernel, Log, MetricsConfig, Network, Paths, Registry, Vmm,
};
use super::shutdown::Shutdown;
use super::tracing::Tracing;

/// Where the configuration is unless `--config` says otherwise.
pub(crate) const CONFIG: &str = "/etc/kvmlet/kvmlet.toml";

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("the configuration {path} cannot be read")]
    Unreadable {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("the configuration {path} is wrong: {message}")]
    Malformed { path: PathBuf, message: String },
    #[error("the configuration {path} is wrong: {setting} = {value:?} {rule}")]
    Value {
        path: PathBuf,
        setting: String,
        value: String,
        rule: &'static str,
    },
}

/// What the operator decides. See `docs/configuration.md`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Name of the node; the host name when it is empty.
    pub(crate) node_name: String,
    /// Unix socket of the service.
    pub(crate) socket: PathBuf,
    /// What does not outlive a reboot.
    pub(crate) run_dir: PathBuf,
    /// Directory of files that outlive a reboot.
    pub(crate) state_dir: PathBuf,
    /// What lies here runs.
    pub(crate) manifest_dir: PathBuf,
    /// Whether a device model that is only provided as virtio is replaced or refused.
    pub(crate) device_substitution: DeviceSubstitution,
    /// Labels of the node, for `nodeSelector`.
    pub(crate) labels: BTreeMap<String, String>,
    /// Networks that a VMI can name as `multus.networkName`.
    pub(crate) networks: BTreeMap<String, Network>,
    /// Registries that are not like all others.
    pub(crate) registries: BTreeMap<String, Registry>,
    /// The network of guests that ask for none.
    pub(crate) pod_network: PodNetwork,
    /// Whom the node dials; nobody when it is left out.
    pub(crate) control_plane: Option<ControlPlaneConfig>,
    pub(crate) paths: Paths,
    pub(crate) images: Images,
    pub(crate) kernel: Kernel,
    pub(crate) firmware: Firmware,
    pub(crate) capacity: Capacity,
    pub(crate) instancetypes: Instancetypes,
    pub(crate) shutdown: Shutdown,
    pub(crate) vmm: Vmm,
    pub(crate) console: Console,
    pub(crate) log: Log,
    /// Whose members may do everything; nobody's when it is empty.
    pub(crate) admin_group: String,
    /// What others may do.
    pub(crate) grants: Vec<Grant>,
    pub(crate) grpc: Grpc,
    pub(crate) hooks: Hooks,
    pub(crate) metrics: MetricsConfig,
    pub(crate) tracing: Tracing,
    pub(crate) debug: Debug,
    /// Where all this was read from, for messages.
    #[serde(skip)]
    pub(crate) origin: PathBuf,
}

/// Whether a device model that is only provided as virtio is replaced or refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum DeviceSubstitution {
    /// They are provided, with a warning.
    #[default]
    Warn,
    /// The VMI is refused.
    Refuse,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            node_name: String::new(),
            socket: PathBuf::from("/run/kvmlet/kvmlet.sock"),
            run_dir: PathBuf::from("/run/kvmlet"),
            state_dir: PathBuf::from("/var/lib/kvmlet"),
            manifest_dir: PathBuf::from("/etc/kvmlet/manifests"),
            device_substitution: DeviceSubstitution::default(),
            labels: BTreeMap::new(),
            networks: BTreeMap::new(),
            registries: BTreeMap::new(),
            pod_network: PodNetwork::default(),
            control_plane: None,
            paths: Paths::default(),
            images: Images::default(),
            kernel: Kernel::default(),
            firmware: Firmware::default(),
            capacity: Capacity::default(),
            instancetypes: Instancetypes::default(),
            shutdown: Shutdown::default(),
            vmm: Vmm::default(),
            console: Console::default(),
            log: Log::default(),
            admin_group: String::from("kvmlet"),
            grants: Vec::new(),
            grpc: Grpc::default(),
            hooks: Hooks::default(),
            metrics: MetricsConfig::default(),
            tracing: Tracing::default(),
            debug: Debug::default(),
            origin: PathBuf::from(CONFIG),
        }
    }
}
