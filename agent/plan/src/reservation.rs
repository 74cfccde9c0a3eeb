//! What a VMI needs of its node, and whether it gets a reservation for it.

use agent_domain::{SingleDevice, Vmi};
use serde::{Deserialize, Serialize};

use crate::cpus::CpuSet;
use crate::dedicated::{CpuDemand, DedicatedCpus};

const MIB: u64 = 1 << 20;

/// The VMM without the devices below: 16 MiB of program and allocator, 12 MiB of control connections (8 with a
/// frame of 1 MiB and 512 KiB unsent), 24 MiB of firmware (flash, and one transfer of its configuration),
/// 4 MiB of console and ports, 7 MiB that the kernel keeps of the process. In the 16 MiB are devices of which there is
/// one at most, with at most a turn's work at a time: of the entropy device 64 KiB, of the balloon the 1024 page numbers of a
/// request, of a port of the console 64 KiB, of the watchdog a timer.
const VMM_BYTES: u64 = 63 * MIB;

/// A vCPU: its thread's stack, and what KVM keeps of it.
const VCPU_BYTES: u64 = MIB;

/// A disk: 128 requests of 1024 parts, and the detour of requests that are not aligned
/// (`BlkDevice::COUNTED_BYTES` of the VMM).
pub const DISK_BYTES: u64 = 8 * MIB;

/// A disk over a base: the bitmap of the largest base that a VMM takes (`BlkDevice::COUNTED_BITMAP_BYTES`).
pub const BITMAP_BYTES: u64 = 4 * MIB;

/// An interface, and each pair of its queues: a frame and the parts of another both ways
/// (`COUNTED_BYTES_OF_PAIR` of the VMM's NIC).
const NIC_BYTES: u64 = MIB;
/// A pair of queues of an interface.
pub const PAIR_BYTES: u64 = MIB / 2;

/// Sockets of the guest: 1024 connections of 64 KiB, and what is noted of them (`vsock::COUNTED_BYTES` of the VMM).
pub const VSOCK_BYTES: u64 = 72 * MIB;

/// Page tables of KVM and of the VMM, and KVM's way back from pages to them, a 512th of memory each; what
/// KVM notes of each page, a 2048th; logs of what is written.
const PAGE_SHARE: u64 = 128;

/// A device of which there is one at most, beyond what [`VMM_BYTES`] has for it.
const fn single_bytes(device: SingleDevice) -> u64 {
    match device {
        SingleDevice::Vsock => VSOCK_BYTES,
        SingleDevice::Rng
        | SingleDevice::Console
        | SingleDevice::Watchdog
        | SingleDevice::Pvpanic
        | SingleDevice::Balloon => 0,
    }
}

/// Memory that a VMI's VMM may take beside its guest's: the sum of what its parts may hold.
#[must_use]
pub fn overhead_bytes(vmi: &Vmi) -> u64 {
    let count = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
    let overlaid = vmi.disks.iter().filter(|disk| disk.is_overlaid());
    let pairs = vmi.interfaces.iter().map(|nic| u64::from(nic.queues));
    let singles = vmi.single_devices.iter().copied().map(single_bytes);
    let parts = [
        (u64::from(vmi.cpus.count()), VCPU_BYTES),
        (count(vmi.disks.len()), DISK_BYTES),
        (count(overlaid.count()), BITMAP_BYTES),
        (count(vmi.interfaces.len()), NIC_BYTES),
        (pairs.sum(), PAIR_BYTES),
        (1, singles.sum()),
    ];
    let devices = parts
        .into_iter()
        .map(|(count, bytes)| count.saturating_mul(bytes));
    devices.fold(
        VMM_BYTES + vmi.memory_bytes / PAGE_SHARE,
        u64::saturating_add,
    )
}

/// What one VMI takes of its node. Recorded when it is granted: what a later configuration would compute
/// changes nothing for a guest that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceDemand {
    /// Ordinary memory, without the VMM's own.
    pub memory_bytes: u64,
    /// Ordinary memory of the VMM.
    pub overhead_bytes: u64,
    /// CPU in thousandths, of those that are shared.
    pub cpu_millis: u64,
    /// Huge pages of one size.
    #[serde(default)]
    pub hugepages: Option<HugepageDemand>,
    /// CPUs for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedicated: Option<CpuDemand>,
    /// Where it runs, once it was granted. `None`: anywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuGrant>,
}

/// CPUs on which a VMI runs, from its launch to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CpuGrant {
    /// Those that are nobody's own, which it shares with others.
    Shared(CpuSet),
    /// CPUs on which no other VMI runs.
    Dedicated(DedicatedCpus),
}

/// Huge pages that a VMI takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HugepageDemand {
    /// Size of a page.
    pub page_bytes: u64,
    /// Size of all pages.
    pub bytes: u64,
}

impl ResourceDemand {
    /// What an admitted VMI takes: its requests, as KubeVirt fills them in. A vCPU for which no CPU is
    /// requested takes a `cpu_allocation_ratio`th of one.
    #[must_use]
    pub fn of(vmi: &Vmi, cpu_allocation_ratio: u32) -> Self {
        let vcpus = u64::from(vmi.cpus.count()).saturating_mul(1000);
        let hugepages = vmi.memory.hugepages.map(|size| HugepageDemand {
            page_bytes: size.bytes(),
            bytes: vmi.memory_bytes,
        });
        let requested = vmi.resources.memory_request_bytes;
        let shared = || {
            let millis = vmi.resources.cpu_request_millis;
            millis.unwrap_or(vcpus / u64::from(cpu_allocation_ratio.max(1)))
        };
        let dedicated = vmi.cpu.dedicated.as_ref().map(|dedicated| CpuDemand {
            vcpus: vmi.cpus.count(),
            emulator: dedicated.isolate_emulator,
            whole_cores: vmi.cpus.threads > 1,
        });
        Self {
            memory_bytes: if hugepages.is_some() {
                0
            } else {
                requested.unwrap_or(vmi.memory_bytes)
            },
            overhead_bytes: overhead_bytes(vmi),
            cpu_millis: if dedicated.is_some() { 0 } else { shared() },
            hugepages,
            dedicated,
            cpus: None,
        }
    }

    /// CPUs that are its own.
    #[must_use]
    pub fn own_cpus(&self) -> CpuSet {
        match &self.cpus {
            Some(CpuGrant::Dedicated(cpus)) => cpus.all(),
            Some(CpuGrant::Shared(_)) | None => CpuSet::default(),
        }
    }

    /// All ordinary memory.
    #[must_use]
    pub const fn all_memory_bytes(&self) -> u64 {
        self.memory_bytes.saturating_add(self.overhead_bytes)
    }
}

/// Whether the node reserves for a VMI what it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reservation {
    /// The reservation.
    Granted(ResourceDemand),
    /// The node has not enough now.
    Waits {
        /// What is needed and what the node has, for people.
        why: String,
    },
}

impl Default for Reservation {
    fn default() -> Self {
        Self::Granted(ResourceDemand::default())
    }
}
