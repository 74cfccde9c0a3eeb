//! What this node is, for admission and for `GetNodeInfo`.

mod pod_network;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use agent_domain::{NodeCaps, PathGrant, PathRules, PodPool};
use agent_host::{
    DebugIoPorts, EfiFiles, FirmwareFinder, FirmwareSettings, KnownPaths, LinuxHostConfig,
    NamedAddresses, NodeFacts, RegistryHost, RegistryProxy, RegistrySettings,
};

use crate::config::{Config, DeviceSubstitution, Firmware};

pub(crate) use pod_network::{keep_network6, pod_network};

/// KubeVirt's word for the only architecture that the VMM has.
pub(crate) const ARCHITECTURE: &str = "amd64";

/// vCPUs when KVM cannot say: the VMM will be refused anyway, but admission need not be wrong.
const DEFAULT_MAX_VCPUS: u32 = 64;

/// The name under which the node is known.
pub(crate) fn node_name(config: &Config) -> String {
    if !config.node_name.is_empty() {
        return config.node_name.clone();
    }
    nix::unistd::gethostname()
        .ok()
        .and_then(|name| name.into_string().ok())
        .unwrap_or_else(|| String::from("localhost"))
}

/// What admission judges by.
pub(crate) fn caps(config: &Config, facts: &NodeFacts) -> NodeCaps {
    let node_name = node_name(config);
    let mut labels = BTreeMap::from([
        (String::from("kubernetes.io/hostname"), node_name.clone()),
        (String::from("kubernetes.io/arch"), ARCHITECTURE.to_owned()),
        (String::from("kubernetes.io/os"), String::from("linux")),
    ]);
    labels.extend(config.labels.clone());
    NodeCaps {
        node_name,
        architecture: ARCHITECTURE.to_owned(),
        max_vcpus: facts
            .kvm
            .as_ref()
            .map_or(DEFAULT_MAX_VCPUS, |kvm| kvm.max_vcpus),
        memory_bytes: facts.memory_bytes,
        networks: bridges(config),
        paths: path_rules(config),
        pod_network: pod_network(config).map(|config| PodPool {
            network: config.network,
            prefix: config.prefix,
            network6: config.network6,
        }),
        labels,
        refuse_substitution: config.device_substitution == DeviceSubstitution::Refuse,
        firmware: firmware(config).lacks(),
    }
}

/// What the configuration says of paths of the host.
pub(crate) fn path_rules(config: &Config) -> PathRules {
    let grants = config.paths.grants.iter().map(|grant| PathGrant {
        path: grant.path.clone(),
        namespaces: grant.namespaces.iter().cloned().collect(),
    });
    PathRules {
        disks: config.paths.disk_roots(),
        boot: config.paths.boot_roots(),
        grants: grants.collect(),
        setting: format!("paths.grants in {}", config.origin.display()),
        ..PathRules::default()
    }
}

/// Finds firmware, as the configuration has it.
pub(crate) fn firmware(config: &Config) -> FirmwareFinder {
    FirmwareFinder::new(firmware_settings(config))
}

fn firmware_settings(config: &Config) -> FirmwareSettings {
    let Firmware {
        bios,
        efi,
        efi_variables,
    } = config.firmware.clone();
    FirmwareSettings {
        bios,
        efi: efi
            .zip(efi_variables)
            .map(|(code, variables)| EfiFiles { code, variables }),
        origin: config.origin.display().to_string(),
    }
}

/// Where the host keeps its own, below the agent's state.
pub(crate) fn host_state_dir(config: &Config) -> PathBuf {
    config.state_dir.join("host")
}

/// The configuration of the Linux host.
pub(crate) fn host_config(config: &Config, known_paths: &KnownPaths) -> LinuxHostConfig {
    // Below the run directory, which holds the service's socket and is open to its group.
    let mut host = LinuxHostConfig::new(
        config.run_dir.join("host"),
        host_state_dir(config),
        config.vmm.program.clone(),
    );
    host.paths = path_rules(config);
    host.path_records = known_paths.clone();
    host.bridges = bridges(config);
    host.walls_off_for = walls_off_for(config);
    host.addresses = addresses(config);
    host.images = config.images.limits();
    host.registries = registries(config);
    host.pod_network = pod_network(config);
    host.firmware = firmware_settings(config);
    host.unpack_kernels = config.kernel.unpack;
    host.kernel_cache_bytes = config.kernel.cache_bytes;
    host.memory_mapped_pci = config.kernel.memory_mapped_pci;
    host.vmm_user_base = config.vmm.user_base;
    host.console_log_bytes = config.console.log_bytes;
    host.debug_ports = DebugIoPorts {
        boot_timestamp: config.debug.boot_timestamp_port,
        exit: config.debug.exit_port,
    };
    host
}

/// Networks and their bridges.
pub(crate) fn bridges(config: &Config) -> BTreeMap<String, String> {
    config
        .networks
        .iter()
        .map(|(name, network)| (name.clone(), network.bridge.clone()))
        .collect()
}

/// Networks, and the namespaces that may do without walls there.
fn walls_off_for(config: &Config) -> BTreeMap<String, BTreeSet<String>> {
    let networks = config.networks.iter();
    networks
        .map(|(name, network)| {
            let namespaces = network.walls_off_for.iter().cloned();
            (name.clone(), namespaces.collect())
        })
        .collect()
}

/// Networks, and which addresses VMIs have there.
fn addresses(config: &Config) -> BTreeMap<String, NamedAddresses> {
    let networks = config.networks.iter();
    networks
        .map(|(name, network)| (name.clone(), network.addresses.clone()))
        .collect()
}

/// Files with certificates of registries' authorities, by registry.
pub(crate) fn authorities(config: &Config) -> BTreeMap<String, PathBuf> {
    let named = config.registries.iter();
    named
        .filter_map(|(name, registry)| Some((name.clone(), registry.ca.clone()?)))
        .collect()
}

fn registries(config: &Config) -> RegistrySettings {
    let hosts = config.registries.iter().map(|(name, registry)| {
        let host = RegistryHost {
            insecure: registry.insecure,
            ca: registry.ca.clone(),
            mirrors: registry.mirrors.clone(),
            proxy: registry.proxy.as_deref().and_then(RegistryProxy::parse),
            answer: registry.timeout_seconds.map(Duration::from_secs),
            pull: registry.pull_timeout_seconds.map(Duration::from_secs),
        };
        (name.clone(), host)
    });
    RegistrySettings {
        hosts: hosts.collect(),
    }
}

/// Says at start-up what will not work on this node, and what to do about it.
pub(crate) fn warn_of_missing(config: &Config, facts: &NodeFacts) {
    match &facts.kvm {
        Err(why) => {
            tracing::warn!(
                "{why}; no guest can run: load the module kvm_intel or kvm_amd and switch virtualization \
                on in the firmware"
            );
        }
        Ok(kvm) => {
            if let Some(why) = &kvm.cannot_run_stock_kernels {
                tracing::warn!("{why}");
            }
        }
    }
    let missing = config.capacity.missing_cpus(&facts.layout.all());
    if !missing.is_empty() {
        tracing::warn!(
            "capacity.dedicated_cpus: kvmlet may not use the CPUs {missing} of this node, if it has them; \
             nobody gets them"
        );
    }
    if let Some(why) = pod_network::missing_ipv6(config) {
        tracing::info!("guests of the pod network have no IPv6: {why}");
    }
    if !config.vmm.program.exists() {
        tracing::warn!(
            "{} is missing (setting vmm.program); no guest can be started",
            config.vmm.program.display()
        );
    }
    if !nix::unistd::geteuid().is_root() {
        tracing::warn!(
            "kvmlet does not run as root: taps, bridges and users of VMMs may be out of reach"
        );
    }
    for (name, network) in &config.networks {
        if !std::path::Path::new("/sys/class/net")
            .join(&network.bridge)
            .join("bridge")
            .exists()
        {
            tracing::warn!(
                "networks.{name}: there is no bridge {:?} on this node (yet)",
                network.bridge
            );
        }
    }
}
