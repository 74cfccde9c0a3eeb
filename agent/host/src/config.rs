//! What the operator decides about the host.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::firmware::FirmwareSettings;

/// Settings of the Linux host. The daemon fills it from `/etc/kvmlet/kvmlet.toml`.
#[derive(Debug, Clone)]
pub struct LinuxHostConfig {
    /// Sockets and other things that do not survive a reboot, such as `/run/kvmlet`.
    pub run_dir: PathBuf,
    /// Exit records, console logs, disks and caches, such as `/var/lib/kvmlet`.
    pub state_dir: PathBuf,
    /// The program `kvmlet-vmm`.
    pub vmm_program: PathBuf,
    /// The program that carries out the hidden subcommands of [`crate::child::run`]: the agent's
    /// own, `/proc/self/exe`.
    pub helper_program: PathBuf,
    /// Setting `paths.allowed`: directories below which callers may name host paths.
    pub allowed_dirs: Vec<PathBuf>,
    /// How messages call that setting.
    pub allowed_dirs_setting: String,
    /// Setting `networks.NAME.bridge`: bridge of each network.
    pub bridges: BTreeMap<String, String>,
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
    /// How long the process of a VMM may take to come up to its first word.
    pub launch_limit: Duration,
    /// Setting `console.log_bytes`: largest log of one guest's console.
    pub console_log_bytes: u64,
    /// Which debug ports every guest gets; for tests and benchmarks.
    pub debug_ports: DebugPorts,
}

/// I/O ports that only tests and benchmarks want.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DebugPorts {
    /// The first write to port 0x0d02 is timed.
    pub boot_timestamp: bool,
    /// A write to port 0x0d04 ends the guest.
    pub exit: bool,
}

impl LinuxHostConfig {
    /// The defaults of a host whose directories and VMM program are these.
    #[must_use]
    pub fn new(run_dir: PathBuf, state_dir: PathBuf, vmm_program: PathBuf) -> Self {
        Self {
            run_dir,
            state_dir,
            vmm_program,
            helper_program: PathBuf::from("/proc/self/exe"),
            allowed_dirs: Vec::new(),
            allowed_dirs_setting: "paths.allowed in /etc/kvmlet/kvmlet.toml".to_owned(),
            bridges: BTreeMap::new(),
            unpack_kernels: true,
            kernel_cache_bytes: 2 << 30,
            memory_mapped_pci: false,
            firmware: FirmwareSettings::default(),
            vmm_user_base: 0x6b76_0000,
            launch_limit: Duration::from_secs(15),
            console_log_bytes: 1 << 20,
            debug_ports: DebugPorts::default(),
        }
    }
}
