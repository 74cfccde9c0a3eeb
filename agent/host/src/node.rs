//! Facts about this node: what admission judges by and what is logged at start-up.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use agent_plan::{BootId, CpuLayout, CpuSet, CpuSite};
use kvm_ioctls::Kvm;

use crate::process;

/// What this node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    /// Random UUID of this boot, of `/proc/sys/kernel/random/boot_id`.
    pub boot_id: BootId,
    /// `MemTotal` of `/proc/meminfo`.
    pub memory_bytes: u64,
    /// CPUs that the agent may use, as far as there is time for all of them.
    pub cpus: u32,
    /// CPUs that the agent may use.
    pub layout: CpuLayout,
    /// What KVM can do, or why there is none.
    pub kvm: Result<KvmFacts, String>,
    /// The system that the node runs.
    pub system: SystemFacts,
}

/// The operating system, for people. What it does not say is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SystemFacts {
    /// `/etc/machine-id`.
    pub machine_id: String,
    /// Release of the kernel, as `uname -r` prints it.
    pub kernel_version: String,
    /// `PRETTY_NAME` of `/etc/os-release`.
    pub os_image: String,
}

impl SystemFacts {
    fn collect() -> Self {
        // Each is for people only: a minimal image has neither file.
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self {
            machine_id: read("/etc/machine-id").trim().to_owned(),
            kernel_version: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            os_image: pretty_name(&read("/etc/os-release")),
        }
    }
}

/// `PRETTY_NAME` of os-release(5), without its quotes.
fn pretty_name(text: &str) -> String {
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let name = name.unwrap_or_default().trim();
    name.trim_matches(['"', '\'']).to_owned()
}

/// What KVM can do here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvmFacts {
    /// `KVM_GET_API_VERSION`; 12 since 2007.
    pub api_version: i32,
    /// `KVM_CAP_MAX_VCPUS`.
    pub max_vcpus: u32,
    /// Why stock kernels cannot run, when they cannot; one sentence for people.
    pub cannot_run_stock_kernels: Option<String>,
}

impl NodeFacts {
    /// Looks at the node.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn collect() -> io::Result<Self> {
        Ok(Self {
            boot_id: process::boot_id()?,
            memory_bytes: memory_total(&fs::read_to_string("/proc/meminfo")?)?,
            cpus: std::thread::available_parallelism()
                .map(|count| u32::try_from(count.get()).unwrap_or(u32::MAX))?,
            layout: cpu_layout(Path::new(DEVICES), &usable_cpus()?),
            kvm: kvm_facts(),
            system: SystemFacts::collect(),
        })
    }
}

/// Where the kernel tells of CPUs and NUMA nodes.
const DEVICES: &str = "/sys/devices/system";

/// CPUs that the agent, and so what it starts, may use.
fn usable_cpus() -> io::Result<CpuSet> {
    let status = fs::read_to_string("/proc/self/status")?;
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.and_then(|list| list.parse().ok()).ok_or_else(|| {
        let why = "no Cpus_allowed_list in /proc/self/status";
        io::Error::new(io::ErrorKind::InvalidData, why)
    })
}

/// Where each of these CPUs is. One that `/sys` does not describe is a core of its own, of node 0.
fn cpu_layout(devices: &Path, cpus: &CpuSet) -> CpuLayout {
    let list = |path: &Path| -> Option<CpuSet> { fs::read_to_string(path).ok()?.parse().ok() };
    let nodes = fs::read_dir(devices.join("node"))
        .into_iter()
        .flatten()
        .flatten();
    let nodes: Vec<(u32, CpuSet)> = nodes
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let number = name.strip_prefix("node")?.parse().ok()?;
            Some((number, list(&entry.path().join("cpulist"))?))
        })
        .collect();
    let site = |cpu: u32| {
        let siblings = devices.join(format!("cpu/cpu{cpu}/topology/thread_siblings_list"));
        let node = nodes.iter().find(|(_, cpus)| cpus.contains(cpu));
        CpuSite {
            core: list(&siblings)
                .and_then(|siblings| siblings.iter().next())
                .unwrap_or(cpu),
            numa_node: node.map_or(0, |(number, _)| *number),
        }
    };
    cpus.iter().map(|cpu| (cpu, site(cpu))).collect()
}

/// Where the kernel tells of its pools of huge pages.
const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages";

/// Bytes of huge pages, used or not, by the size of a page. An operator may change them at any time; sizes
/// that cannot be read count as none.
#[must_use]
pub fn huge_pages() -> BTreeMap<u64, u64> {
    huge_pages_of(Path::new(HUGE_PAGES))
}

fn huge_pages_of(pools: &Path) -> BTreeMap<u64, u64> {
    let entries = fs::read_dir(pools).into_iter().flatten().flatten();
    let pool = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let kib = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
        let page_bytes = kib.parse::<u64>().ok()?.checked_mul(1024)?;
        let pages = fs::read_to_string(entry.path().join("nr_hugepages")).ok()?;
        let bytes = page_bytes.checked_mul(pages.trim().parse().ok()?)?;
        Some((page_bytes, bytes))
    };
    entries.filter_map(pool).collect()
}

fn kvm_facts() -> Result<KvmFacts, String> {
    let kvm = Kvm::new().map_err(|error| format!("/dev/kvm cannot be opened: {error}"))?;
    Ok(KvmFacts {
        api_version: kvm.get_api_version(),
        max_vcpus: u32::try_from(kvm.get_max_vcpus()).unwrap_or(u32::MAX),
        cannot_run_stock_kernels: software_emulated(Path::new("/sys/module")),
    })
}

/// Whether guest kernels are interpreted in software, by the back end that is loaded. No
/// `KVM_CAP` tells.
fn software_emulated(modules: &Path) -> Option<String> {
    let is_loaded = |name: &str| modules.join(name).exists();
    if is_loaded("kvm_intel") || is_loaded("kvm_amd") || !is_loaded("kvm_pvm") {
        return None;
    }
    Some(
        "KVM on this host is software-emulated (kvm_pvm): guest kernels are interpreted, and stock \
         kernels use instructions that it does not know"
            .to_owned(),
    )
}

fn memory_total(meminfo: &str) -> io::Result<u64> {
    meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.trim().strip_suffix("kB"))
        .and_then(|kib| kib.trim().parse::<u64>().ok())
        .map(|kib| kib * 1024)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no MemTotal in /proc/meminfo"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_node_has_memory_and_cpus() {
        let facts = NodeFacts::collect().unwrap();
        assert!(facts.memory_bytes > 64 << 20);
        assert!(facts.cpus > 0);
        assert!(facts.layout.all().len() >= usize::try_from(facts.cpus).unwrap());
        println!("{facts:?}");
    }

    #[test]
    fn cpus_are_where_the_kernel_says_and_alone_where_it_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("node/node0/cpulist", "0,2\n");
        write("node/node1/cpulist", "1,3\n");
        write("node/possible", "0-1\n");
        write("cpu/cpu1/topology/thread_siblings_list", "1,3\n");
        write("cpu/cpu3/topology/thread_siblings_list", "1,3\n");
        let layout = cpu_layout(dir.path(), &"0-1,3".parse().unwrap());
        assert_eq!(layout.all().to_string(), "0-1,3");
        let site = |core, numa_node| Some(CpuSite { core, numa_node });
        assert_eq!(layout.site(0), site(0, 0));
        assert_eq!(layout.site(1), site(1, 1));
        assert_eq!(layout.site(3), site(1, 1));
    }

    #[test]
    fn only_a_software_back_end_alone_is_warned_of() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(software_emulated(dir.path()), None);
        fs::create_dir(dir.path().join("kvm_pvm")).unwrap();
        assert!(software_emulated(dir.path()).unwrap().contains("kvm_pvm"));
        fs::create_dir(dir.path().join("kvm_amd")).unwrap();
        assert_eq!(software_emulated(dir.path()), None);
    }

    #[test]
    fn pools_of_huge_pages_are_counted_in_bytes() {
        let dir = tempfile::tempdir().unwrap();
        for (name, pages) in [
            ("hugepages-2048kB", "512\n"),
            ("hugepages-1048576kB", "0\n"),
            ("other", "9"),
        ] {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("nr_hugepages"), pages).unwrap();
        }
        fs::create_dir(dir.path().join("hugepages-64kB")).unwrap();
        let expected = BTreeMap::from([(2 << 20, 1 << 30), (1 << 30, 0)]);
        assert_eq!(huge_pages_of(dir.path()), expected);
        assert!(huge_pages_of(&dir.path().join("nothing")).is_empty());
    }

    #[test]
    fn malformed_meminfo_is_an_error() {
        assert_eq!(memory_total("MemTotal:  16 kB\n").unwrap(), 16384);
        assert!(memory_total("MemTotal: many\n").is_err());
        assert!(memory_total("").is_err());
    }
}
