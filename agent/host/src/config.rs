//! The operator's settings for the host.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use agent_domain::{PathRecord, PathRecords, PathRules};

use crate::firmware::FirmwareSettings;
use crate::free_space::ImageStoreLimits;
use crate::machine_config::DebugIoPorts;
use crate::pod::PodNetworkConfig;
use crate::programs::{DHCP_PROGRAM, find_program};
use crate::registry::RegistrySettings;

/// What the agent remembers of paths at present, for all who ask.
#[derive(Clone, Debug, Default)]
pub struct KnownPaths(Arc<RwLock<Known>>);

#[derive(Debug, Default)]
struct Known {
    records: Arc<PathRecords>,
    /// Versions of the ledger at which records were written.
    versions: BTreeMap<PathBuf, u64>,
}

impl KnownPaths {
    /// All that is remembered now.
    #[must_use]
    pub fn get(&self) -> Arc<PathRecords> {
        // Nothing that holds the lock can leave it half changed.
        Arc::clone(
            &self
                .0
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .records,
        )
    }

    /// Has a path be remembered from now on, as it was written to the ledger at that version. Of two writes the later one counts, in
    /// whatever order they are reported.
    pub fn insert(&self, path: PathBuf, record: PathRecord, version: u64) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known
            .versions
            .get(&path)
            .is_some_and(|later| *later > version)
        {
            return;
        }
        known.versions.insert(path.clone(), version);
        Arc::make_mut(&mut known.records).insert(path, record);
    }
}

/// Addresses of VMIs on one network, by namespace/name.
pub type NamedAddresses = BTreeMap<String, Vec<IpAddr>>;

/// Settings of the Linux host. The daemon fills it from `/etc/kvmlet/kvmlet.toml`.
#[derive(Debug, Clone)]
pub struct LinuxHostConfig {
    /// Sockets and other things that do not survive a reboot, such as `/run/kvmlet`.
    pub run_dir: PathBuf,
    /// Exit records, console logs, disks and caches, such as `/var/lib/kvmlet`.
    pub state_dir: PathBuf,
    /// The program `kvmlet-vmm`.
    pub vmm_program: PathBuf,
    /// The program `kvmlet-dhcp`.
    pub dhcp_program: PathBuf,
    /// The program that carries out the hidden subcommands of [`crate::child::run`]: the agent's
    /// own, `/proc/self/exe`.
    pub helper_program: PathBuf,
    /// Settings `paths`: which paths of the host a namespace may use.
    pub paths: PathRules,
    /// What is remembered of paths; it counts beside the settings.
    pub path_records: KnownPaths,
    /// Settings `images`: how full images may make their file system.
    pub images: ImageStoreLimits,
    /// Settings `registries."HOST"`.
    pub registries: RegistrySettings,
    /// Setting `networks.NAME.bridge`: bridge of each network.
    pub bridges: BTreeMap<String, String>,
    /// Setting `networks.NAME.walls_off_for`: namespaces that may do without walls on each network, or `*`.
    pub walls_off_for: BTreeMap<String, BTreeSet<String>>,
    /// Setting `networks.NAME.addresses`: all addresses of VMIs on each network, by namespace/name.
    pub addresses: BTreeMap<String, NamedAddresses>,
    /// Settings `pod_network`; `None`: it is switched off.
    pub pod_network: Option<PodNetworkConfig>,
    /// Setting `kernel.unpack`: unpack a compressed kernel before it is booted. Otherwise a bzImage
    /// is booted by its own 64-bit entry.
    pub unpack_kernels: bool,
    /// Setting `kernel.cache_bytes`: what unpacked kernels may take on disk.
    pub kernel_cache_bytes: u64,
    /// Setting `kernel.memory_mapped_pci`: Linux that is booted directly uses memory for all of PCI's
    /// configuration space, where reads are no exits.
    pub memory_mapped_pci: bool,
    /// Settings `firmware`: where firmware is, if not where packages say.
    pub firmware: FirmwareSettings,
    /// Setting `vmm.user_base`: when the agent is root, VMMs run as users of the 65536 from here
    /// on, each as one of its own.
    pub vmm_user_base: u32,
    /// Time limit from the start of a VMM to its hello.
    pub launch_limit: Duration,
    /// Setting `console.log_bytes`: largest log of one guest's console.
    pub console_log_bytes: u64,
    /// Which debug ports every guest gets; for tests and benchmarks.
    pub debug_ports: DebugIoPorts,
}

impl LinuxHostConfig {
    /// The defaults of a host whose directories and VMM program are these. Its server of addresses is where it is
    /// installed.
    #[must_use]
    pub fn new(run_dir: PathBuf, state_dir: PathBuf, vmm_program: PathBuf) -> Self {
        Self {
            run_dir,
            state_dir,
            vmm_program,
            dhcp_program: find_program(DHCP_PROGRAM),
            helper_program: PathBuf::from("/proc/self/exe"),
            paths: PathRules::default(),
            path_records: KnownPaths::default(),
            images: ImageStoreLimits::default(),
            registries: RegistrySettings::default(),
            bridges: BTreeMap::new(),
            walls_off_for: BTreeMap::new(),
            addresses: BTreeMap::new(),
            pod_network: None,
            unpack_kernels: true,
            kernel_cache_bytes: 2 << 30,
            memory_mapped_pci: false,
            firmware: FirmwareSettings::default(),
            vmm_user_base: 0x6b76_0000,
            launch_limit: Duration::from_secs(15),
            console_log_bytes: 1 << 20,
            debug_ports: DebugIoPorts::default(),
        }
    }
}
