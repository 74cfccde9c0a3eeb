//! CPUID of each vCPU: what the host's KVM supports, with the guest's own topology.
//!
//! Leaves are edited when the host has them, whoever made the CPU. The hypervisor leaves are KVM's.

use kvm_bindings::{CpuId, KVM_CPUID_FLAG_SIGNIFCANT_INDEX, kvm_cpuid_entry2};

use crate::error::KvmError;
use crate::host::KvmHost;

/// xAPIC ids have 8 bits, and 255 is the broadcast address.
const MAX_APIC_ID: u32 = 254;

/// Sockets, cores and threads of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTopology {
    sockets: u32,
    cores: u32,
    threads: u32,
}

/// A topology that can not be.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum TopologyError {
    /// One of the three is zero.
    #[error("a topology of {sockets} sockets, {cores} cores and {threads} threads has no vCPU")]
    Empty {
        /// Sockets.
        sockets: u32,
        /// Cores of a socket.
        cores: u32,
        /// Threads of a core.
        threads: u32,
    },
    /// APIC ids run out.
    #[error(
        "a topology of {sockets} sockets, {cores} cores and {threads} threads needs APIC ids above {MAX_APIC_ID}"
    )]
    TooLarge {
        /// Sockets.
        sockets: u32,
        /// Cores of a socket.
        cores: u32,
        /// Threads of a core.
        threads: u32,
    },
}

impl CpuTopology {
    /// A topology with at least one vCPU whose APIC ids are below 255.
    ///
    /// # Errors
    /// When it has no vCPU or too many.
    pub fn new(sockets: u32, cores: u32, threads: u32) -> Result<Self, TopologyError> {
        if sockets == 0 || cores == 0 || threads == 0 {
            return Err(TopologyError::Empty {
                sockets,
                cores,
                threads,
            });
        }
        let topology = Self {
            sockets,
            cores,
            threads,
        };
        let small = [sockets, cores, threads]
            .iter()
            .all(|n| *n <= MAX_APIC_ID + 1);
        if !small
            || sockets * cores * threads > MAX_APIC_ID + 1
            || topology.apic_id(topology.count() - 1) > MAX_APIC_ID
        {
            return Err(TopologyError::TooLarge {
                sockets,
                cores,
                threads,
            });
        }
        Ok(topology)
    }

    /// Number of vCPUs.
    #[must_use]
    pub fn count(self) -> u32 {
        self.sockets * self.cores * self.threads
    }

    /// APIC id of vCPU `index`: thread, core and socket number, each in as many bits as it needs.
    #[must_use]
    pub fn apic_id(self, index: u32) -> u32 {
        let thread = index % self.threads;
        let core = index / self.threads % self.cores;
        let socket = index / self.threads / self.cores;
        socket << self.package_bits() | core << self.thread_bits() | thread
    }

    fn thread_bits(self) -> u32 {
        bits_for(self.threads)
    }

    fn package_bits(self) -> u32 {
        self.thread_bits() + bits_for(self.cores)
    }
}

/// Bits that number `count` things from 0.
fn bits_for(count: u32) -> u32 {
    count.next_power_of_two().trailing_zeros()
}

/// The CPUID of vCPU `index`.
pub(crate) fn vcpu_cpuid(
    host: &KvmHost,
    topology: CpuTopology,
    index: u32,
) -> Result<CpuId, KvmError> {
    let mut entries: Vec<kvm_cpuid_entry2> = host.supported_cpuid().as_slice().to_vec();
    for entry in &mut entries {
        edit(entry, topology, index);
        if entry.function == 1 && host.has_tsc_deadline() {
            entry.ecx |= 1 << 24;
        }
    }
    replace_topology_leaf(&mut entries, 0xb, topology, index);
    replace_topology_leaf(&mut entries, 0x1f, topology, index);
    CpuId::from_entries(&entries).map_err(|_| KvmError::MissingCapability {
        capability: "room in the table of KVM_SET_CPUID2",
    })
}

/// Edits one leaf (Intel SDM 2A, CPUID; AMD APM 3, appendix E).
fn edit(entry: &mut kvm_cpuid_entry2, topology: CpuTopology, index: u32) {
    let apic_id = topology.apic_id(index);
    let per_package = 1 << topology.package_bits();
    match entry.function {
        1 => {
            entry.ebx = entry.ebx & 0xffff | per_package << 16 | apic_id << 24;
            // Hypervisor present.
            entry.ecx |= 1 << 31;
            set_bit(&mut entry.edx, 28, per_package > 1);
        }
        4 if entry.eax & 0x1f != 0 => {
            let level = entry.eax >> 5 & 7;
            let sharing = if level < 3 {
                1 << topology.thread_bits()
            } else {
                per_package
            };
            let cores = per_package >> topology.thread_bits();
            entry.eax = entry.eax & 0x3fff | (sharing - 1) << 14 | (cores - 1) << 26;
        }
        0x8000_0008 => {
            let count = (topology.cores * topology.threads - 1) & 0xff;
            entry.ecx = topology.package_bits() << 12 | count;
        }
        0x8000_001d if entry.eax & 0x1f != 0 => {
            let level = entry.eax >> 5 & 7;
            let sharing = if level < 3 {
                topology.threads
            } else {
                topology.cores * topology.threads
            };
            entry.eax = entry.eax & 0x3fff | (sharing - 1) << 14;
        }
        0x8000_001e => {
            entry.eax = apic_id;
            entry.ebx = apic_id >> topology.thread_bits() & 0xff | (topology.threads - 1) << 8;
            entry.ecx = 0;
        }
        _ => {}
    }
}

/// Leaf 0xB and its successor 0x1F: thread and core levels, one subleaf each.
fn replace_topology_leaf(
    entries: &mut Vec<kvm_cpuid_entry2>,
    function: u32,
    topology: CpuTopology,
    index: u32,
) {
    if !entries.iter().any(|entry| entry.function == function) {
        return;
    }
    entries.retain(|entry| entry.function != function);
    let levels = [
        (topology.thread_bits(), topology.threads, 1),
        (
            topology.package_bits(),
            topology.cores * topology.threads,
            2,
        ),
        (0, 0, 0),
    ];
    for (subleaf, (shift, count, kind)) in (0u32..).zip(levels) {
        entries.push(kvm_cpuid_entry2 {
            function,
            index: subleaf,
            flags: KVM_CPUID_FLAG_SIGNIFCANT_INDEX,
            eax: shift,
            ebx: count,
            ecx: kind << 8 | subleaf,
            edx: topology.apic_id(index),
            ..kvm_cpuid_entry2::default()
        });
    }
}

fn set_bit(register: &mut u32, bit: u32, on: bool) {
    *register = *register & !(1 << bit) | u32::from(on) << bit;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apic_ids_are_distinct_and_keep_levels_in_bits_of_their_own() {
        let topology = CpuTopology::new(2, 3, 2).unwrap();
        let ids: Vec<u32> = (0..topology.count()).map(|i| topology.apic_id(i)).collect();
        assert_eq!(ids, [0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13]);
    }

    #[test]
    fn impossible_topologies_are_refused() {
        assert!(matches!(
            CpuTopology::new(0, 1, 1),
            Err(TopologyError::Empty { .. })
        ));
        assert!(matches!(
            CpuTopology::new(256, 1, 1),
            Err(TopologyError::TooLarge { .. })
        ));
        assert!(matches!(
            CpuTopology::new(51, 5, 1),
            Err(TopologyError::TooLarge { .. })
        ));
        assert!(matches!(
            CpuTopology::new(u32::MAX, u32::MAX, 2),
            Err(TopologyError::TooLarge { .. })
        ));
        assert_eq!(CpuTopology::new(255, 1, 1).unwrap().count(), 255);
    }

    #[test]
    fn one_vcpu_is_no_hyperthread() {
        let mut leaf = kvm_cpuid_entry2 {
            function: 1,
            edx: u32::MAX,
            ..kvm_cpuid_entry2::default()
        };
        edit(&mut leaf, CpuTopology::new(1, 1, 1).unwrap(), 0);
        assert_eq!(leaf.edx & 1 << 28, 0);
        assert_eq!(leaf.ecx & 1 << 31, 1 << 31);
    }
}
