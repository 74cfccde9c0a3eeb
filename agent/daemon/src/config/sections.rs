//! Sections of the file that need no rules of their own.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use agent_domain::{EVERY_NAMESPACE, Name, Namespace, is_mirror, is_registry};
use agent_host::{EVERY_REGISTRY, RegistryProxy};
use serde::Deserialize;

use super::pod_network::is_bridge_name;

const ABSOLUTE: &str = "must be an absolute path";

/// `[networks.NAME]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Network {
    /// A bridge of the host; taps become its ports.
    pub(crate) bridge: String,
    /// Namespaces whose VMIs may have it that nothing is judged which they send there, or `*` alone: all of them.
    #[serde(default)]
    pub(crate) walls_off_for: Vec<String>,
    /// All addresses that VMIs, by namespace/name, have on it.
    #[serde(default)]
    pub(crate) addresses: BTreeMap<String, Vec<IpAddr>>,
}

const NAMESPACES_RULE: &str = "must be names of namespaces, or \"*\" alone for all of them";

/// Whether these are names of namespaces, or all of them.
fn are_namespaces(names: &[String]) -> bool {
    let is_name = |name: &String| name.parse::<Namespace>().is_ok();
    names == [EVERY_NAMESPACE] || names.iter().all(is_name)
}

const ADDRESSES_RULE: &str = "must be NAMESPACE/NAME of a VMI, and at least one address of a host; no group's, loopback, or broadcast";

/// Whether this names a VMI.
fn is_vmi(text: &str) -> bool {
    text.split_once('/').is_some_and(|(namespace, name)| {
        namespace.parse::<Namespace>().is_ok() && name.parse::<Name>().is_ok()
    })
}

/// Whether a host may have an address; one of its link alone, too.
fn is_a_hosts(address: &IpAddr) -> bool {
    let is_special = match address {
        IpAddr::V4(address) => address.is_broadcast(),
        IpAddr::V6(address) => address.to_ipv4_mapped().is_some(),
    };
    !(is_special || address.is_loopback() || address.is_unspecified() || address.is_multicast())
}

impl Network {
    /// What is wrong with it: key, value and rule.
    pub(crate) fn fault(&self) -> Option<(&'static str, String, &'static str)> {
        if !is_bridge_name(&self.bridge) {
            let rule = "must be the name of a bridge, of 1 to 15 bytes";
            return Some(("bridge", self.bridge.clone(), rule));
        }
        let namespaces = &self.walls_off_for;
        if !are_namespaces(namespaces) {
            return Some(("walls_off_for", namespaces.join(", "), NAMESPACES_RULE));
        }
        let wrong = |(vmi, addresses): &(&String, &Vec<IpAddr>)| {
            !is_vmi(vmi) || addresses.is_empty() || !addresses.iter().all(is_a_hosts)
        };
        let (vmi, addresses) = self.addresses.iter().find(wrong)?;
        let shown: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        Some((
            "addresses",
            format!("{vmi} = {}", shown.join(", ")),
            ADDRESSES_RULE,
        ))
    }
}

/// `[registries."HOST[:PORT]"]`, by which images name it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Registry {
    /// It speaks HTTP without TLS.
    pub(crate) insecure: bool,
    /// Certificates of its authorities, PEM, beside those of the system.
    pub(crate) ca: Option<PathBuf>,
    /// `HOST[:PORT][/PREFIX]`, asked before it, in order.
    pub(crate) mirrors: Vec<String>,
    /// `http://HOST:PORT`, over which it is reached, or `none`.
    pub(crate) proxy: Option<String>,
    /// How long it may take to answer, and between two pieces of what it sends.
    pub(crate) timeout_seconds: Option<u64>,
    /// How long one pull may take.
    pub(crate) pull_timeout_seconds: Option<u64>,
}

/// A child waits for the agent no longer, which connects to registries meanwhile.
const TIMEOUTS: RangeInclusive<u64> = 1..=300;
/// Up to a day. The child that pulls has less of the processor's time.
const PULL_TIMEOUTS: RangeInclusive<u64> = 10..=86400;

impl Registry {
    /// The first key that is wrong, its value, and the rule.
    pub(crate) fn fault(&self, name: &str) -> Option<(&'static str, String, &'static str)> {
        if name != EVERY_REGISTRY && !is_registry(name) {
            let rule = "must be \"*\", or the HOST or HOST:PORT by which images name the registry, without scheme and path";
            return Some((EVERY_REGISTRY, name.to_owned(), rule));
        }
        if let Some(mirror) = self.mirrors.iter().find(|mirror| !is_mirror(mirror)) {
            let rule = "must be HOST[:PORT][/PREFIX], without a scheme";
            return Some(("mirrors", mirror.clone(), rule));
        }
        if let Some(path) = self.ca.as_ref().filter(|path| !path.is_absolute()) {
            return Some(("ca", path.display().to_string(), ABSOLUTE));
        }
        let wrong = |proxy: &&String| RegistryProxy::parse(proxy).is_none();
        if let Some(proxy) = self.proxy.as_ref().filter(wrong) {
            // It may hold a password, which a log should not.
            let shown = proxy.rsplit('@').next().unwrap_or(proxy).to_owned();
            let rule = "must be http://HOST:PORT, without a user, or none";
            return Some(("proxy", shown, rule));
        }
        let outside = |value: Option<u64>, bounds: &RangeInclusive<u64>| {
            let wrong = value.filter(|value| !bounds.contains(value));
            wrong.map(|value| value.to_string())
        };
        if let Some(value) = outside(self.timeout_seconds, &TIMEOUTS) {
            return Some(("timeout_seconds", value, "must be 1 to 300"));
        }
        if let Some(value) = outside(self.pull_timeout_seconds, &PULL_TIMEOUTS) {
            return Some(("pull_timeout_seconds", value, "must be 10 to 86400"));
        }
        let is_special = self.insecure || self.ca.is_some() || !self.mirrors.is_empty();
        (name == EVERY_REGISTRY && is_special).then(|| {
            let rule = "takes proxy, timeout_seconds and pull_timeout_seconds alone: the other keys are those of one registry";
            ("*", name.to_owned(), rule)
        })
    }
}

/// `[paths]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Paths {
    /// Directories in which namespaces have disks.
    pub(crate) disks: Option<Vec<PathBuf>>,
    /// Directories in which namespaces have kernels and images.
    pub(crate) boot: Option<Vec<PathBuf>>,
    /// Directories of both kinds: the only kind of earlier releases.
    pub(crate) allowed: Option<Vec<PathBuf>>,
    /// What namespaces have beside the directories of their names.
    pub(crate) grants: Vec<GrantedPath>,
}

/// `[[paths.grants]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GrantedPath {
    /// A file, or a directory with all that is in it.
    pub(crate) path: PathBuf,
    /// Namespaces, or `*` alone: all of them, for reading.
    pub(crate) namespaces: Vec<String>,
}

impl Paths {
    /// Directories for disks.
    pub(crate) fn disk_roots(&self) -> Vec<PathBuf> {
        self.roots(self.disks.as_ref(), "/var/lib/kvmlet/disks")
    }

    /// Directories for kernels and images.
    pub(crate) fn boot_roots(&self) -> Vec<PathBuf> {
        self.roots(self.boot.as_ref(), "/var/lib/kvmlet/images")
    }

    /// Those of one kind, and those of both. Who lists any of these has no default.
    fn roots(&self, of_kind: Option<&Vec<PathBuf>>, default: &str) -> Vec<PathBuf> {
        let mut roots = match (of_kind, &self.allowed) {
            (Some(roots), _) => roots.clone(),
            (None, None) => vec![PathBuf::from(default)],
            (None, Some(_)) => Vec::new(),
        };
        roots.extend(self.allowed.iter().flatten().cloned());
        roots
    }

    /// What is wrong with it: setting, value and rule.
    pub(crate) fn fault(&self) -> Option<(String, String, &'static str)> {
        let lists = [
            ("paths.disks", &self.disks),
            ("paths.boot", &self.boot),
            ("paths.allowed", &self.allowed),
        ];
        for (setting, list) in lists {
            if let Some(path) = list.iter().flatten().find(|path| !path.is_absolute()) {
                return Some((setting.to_owned(), path.display().to_string(), ABSOLUTE));
            }
        }
        self.grants.iter().enumerate().find_map(|(index, grant)| {
            let setting = |key: &str| format!("paths.grants[{index}].{key}");
            if !grant.path.is_absolute() {
                let path = grant.path.display().to_string();
                return Some((setting("path"), path, ABSOLUTE));
            }
            let is_list = !grant.namespaces.is_empty() && are_namespaces(&grant.namespaces);
            (!is_list).then(|| {
                let namespaces = grant.namespaces.join(", ");
                (setting("namespaces"), namespaces, NAMESPACES_RULE)
            })
        })
    }
}

/// `[kernel]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Kernel {
    /// Unpack compressed kernels before they are booted.
    pub(crate) unpack: bool,
    /// What unpacked kernels may take on disk.
    pub(crate) cache_bytes: u64,
    /// Linux finds no ports of PCI's configuration space.
    pub(crate) memory_mapped_pci: bool,
}

/// `[firmware]`: where it is, if not where packages say.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Firmware {
    /// Image of SeaBIOS.
    pub(crate) bios: Option<PathBuf>,
    /// Image of OVMF without secure boot.
    pub(crate) efi: Option<PathBuf>,
    /// Template of its variables.
    pub(crate) efi_variables: Option<PathBuf>,
}

/// `[vmm]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Vmm {
    /// The program `kvmlet-vmm`.
    pub(crate) program: PathBuf,
    /// First of the 65536 user ids that VMMs run under.
    pub(crate) user_base: u32,
}

/// `[console]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Console {
    /// Largest log of one guest's console.
    pub(crate) log_bytes: u64,
}

/// `[log]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Log {
    pub(crate) format: LogFormat,
    /// As `RUST_LOG` has it: `info`, `debug`, `warn,agent_host=debug`.
    pub(crate) level: String,
}

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

/// `[metrics]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MetricsConfig {
    /// Address and port where Prometheus finds them; nowhere when it is left out.
    pub(crate) listen: Option<SocketAddr>,
}

/// `[debug]`: for tests and benchmarks.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Debug {
    /// Every guest has the port that times its first write.
    pub(crate) boot_timestamp_port: bool,
    /// Every guest has the port that ends it.
    pub(crate) exit_port: bool,
}

impl Default for Kernel {
    fn default() -> Self {
        Self {
            unpack: true,
            cache_bytes: 2 << 30,
            memory_mapped_pci: false,
        }
    }
}

impl Default for Vmm {
    fn default() -> Self {
        Self {
            program: default_vmm(),
            user_base: 0x6b76_0000,
        }
    }
}

impl Default for Console {
    fn default() -> Self {
        Self { log_bytes: 1 << 20 }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self {
            format: LogFormat::default(),
            level: String::from("info"),
        }
    }
}

fn default_vmm() -> PathBuf {
    agent_host::find_program("kvmlet-vmm")
}
