//! The CPUID that a guest started with, as it outlives its process.
//!
//! A guest reads CPUID once and relies on it from then on. So it goes on only where CPUID is the
//! same: what differs is named, by the name of a feature where there is one.

use std::collections::BTreeSet;

use kvm_bindings::{KVM_MAX_CPUID_ENTRIES, kvm_cpuid_entry2};

use super::features::FeatureSet;
use super::guest::GuestCpu;
use super::leaves::Leaves;
use proto_machine::cpu_features::Register;

const REGISTERS: [(Register, &str); 4] = [
    (Register::Eax, "EAX"),
    (Register::Ebx, "EBX"),
    (Register::Ecx, "ECX"),
    (Register::Edx, "EDX"),
];

/// Leaves that tell the frequency of the TSC. Whether the guest can keep its own is for the state of
/// its vCPUs to say; the digits after that are the host's, and vary from boot to boot.
const FREQUENCY: [u32; 3] = [0x15, 0x16, 0x4000_0010];

/// The CPUID that a guest started with.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CpuState {
    /// Sockets that were there at power-on.
    #[prost(uint32, tag = "1")]
    sockets: u32,
    /// Cores of a socket.
    #[prost(uint32, tag = "2")]
    cores: u32,
    /// Threads of a core.
    #[prost(uint32, tag = "3")]
    threads: u32,
    /// vCPUs that there may ever be.
    #[prost(uint32, tag = "4")]
    max_vcpus: u32,
    /// CPUID of the first vCPU. That of others follows from the topology.
    #[prost(message, repeated, tag = "5")]
    leaves: Vec<LeafState>,
    /// The bits of `IA32_ARCH_CAPABILITIES` that have names.
    #[prost(fixed64, tag = "6")]
    arch_capabilities: u64,
}

/// One leaf.
#[derive(Clone, Copy, PartialEq, prost::Message)]
struct LeafState {
    #[prost(uint32, tag = "1")]
    leaf: u32,
    #[prost(uint32, tag = "2")]
    subleaf: u32,
    #[prost(fixed32, tag = "3")]
    eax: u32,
    #[prost(fixed32, tag = "4")]
    ebx: u32,
    #[prost(fixed32, tag = "5")]
    ecx: u32,
    #[prost(fixed32, tag = "6")]
    edx: u32,
}

/// A guest cannot go on with these CPUs, because it started with others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuMismatch {
    /// The host is another, and less able.
    #[error("the guest uses {0}, which this host's KVM cannot provide")]
    HostLacks(Box<FeatureSet>),
    /// The host is able, the configuration does not want it.
    #[error("the guest uses {0}, which the CPUs of this configuration do not have")]
    NotConfigured(Box<FeatureSet>),
    /// The guest would find more than it started with.
    #[error("the CPUs of this configuration have {0}, which the guest started without")]
    NotSaved(Box<FeatureSet>),
    /// Other numbers of sockets, cores or threads.
    #[error("the guest has {saved} of its CPUs' {what}, this configuration {here}")]
    Topology {
        /// Name of the number: sockets, cores or threads.
        what: &'static str,
        /// The guest's.
        saved: u32,
        /// The configuration's.
        here: u32,
    },
    /// What no feature's name says.
    #[error(
        "CPUID leaf {leaf:#x}, subleaf {subleaf:#x}: the guest started with {saved:#x} in {register}, here it is {here:#x}"
    )]
    Leaf {
        /// EAX of the question.
        leaf: u32,
        /// ECX of the question.
        subleaf: u32,
        /// Register of the answer.
        register: &'static str,
        /// The guest's.
        saved: u32,
        /// The configuration's, on this host.
        here: u32,
    },
    /// No CPU of KVM's has so many.
    #[error("{0} leaves of CPUID are more than any CPU of KVM's has")]
    TooManyLeaves(usize),
}

impl CpuState {
    fn leaves(&self) -> Leaves {
        let entry = |state: &LeafState| kvm_cpuid_entry2 {
            function: state.leaf,
            index: state.subleaf,
            eax: state.eax,
            ebx: state.ebx,
            ecx: state.ecx,
            edx: state.edx,
            ..kvm_cpuid_entry2::default()
        };
        let entries: Vec<_> = self.leaves.iter().map(entry).collect();
        Leaves::new(&entries)
    }

    /// Checks what can be wrong whatever the host.
    ///
    /// # Errors
    /// It has more leaves than there can be.
    pub fn check(&self) -> Result<(), CpuMismatch> {
        if self.leaves.len() > KVM_MAX_CPUID_ENTRIES {
            return Err(CpuMismatch::TooManyLeaves(self.leaves.len()));
        }
        Ok(())
    }
}

impl GuestCpu {
    /// The guest's CPUID, to be saved.
    #[must_use]
    pub fn save(&self) -> CpuState {
        let topology = self.topology();
        let leaves = self.leaves(0);
        CpuState {
            sockets: topology.count() / (topology.cores() * topology.threads()),
            cores: topology.cores(),
            threads: topology.threads(),
            max_vcpus: topology.max_count(),
            leaves: leaves
                .iter()
                .map(|entry| LeafState {
                    leaf: entry.function,
                    subleaf: entry.index,
                    eax: entry.eax,
                    ebx: entry.ebx,
                    ecx: entry.ecx,
                    edx: entry.edx,
                })
                .collect(),
            arch_capabilities: self.features().arch_capabilities(),
        }
    }

    /// Checks that a guest that started with `saved` finds the same here.
    ///
    /// # Errors
    /// It is not: see [`CpuMismatch`].
    pub fn check(&self, saved: &CpuState) -> Result<(), CpuMismatch> {
        saved.check()?;
        let here = self.save();
        let topology = [
            ("sockets", saved.sockets, here.sockets),
            ("cores", saved.cores, here.cores),
            ("threads", saved.threads, here.threads),
            ("largest number", saved.max_vcpus, here.max_vcpus),
        ];
        for (what, saved, here) in topology {
            if saved != here {
                return Err(CpuMismatch::Topology { what, saved, here });
            }
        }
        let (before, now) = (saved.leaves(), self.leaves(0));
        self.check_features(FeatureSet::read(&before, saved.arch_capabilities))?;
        let key = |entry: &kvm_cpuid_entry2| (entry.function, entry.index);
        let keys: BTreeSet<_> = before.iter().chain(now.iter()).map(key).collect();
        for (leaf, subleaf) in keys {
            if FREQUENCY.contains(&leaf) {
                continue;
            }
            for (register, name) in REGISTERS {
                let of = |leaves: &Leaves| leaves.get(leaf, subleaf, register);
                let (saved, here) = (of(&before), of(&now));
                if saved != here {
                    return Err(CpuMismatch::Leaf {
                        leaf,
                        subleaf,
                        register: name,
                        saved,
                        here,
                    });
                }
            }
        }
        Ok(())
    }

    fn check_features(&self, saved: FeatureSet) -> Result<(), CpuMismatch> {
        let lost = saved.without(*self.features());
        let impossible = lost.without(self.host_features());
        if !impossible.is_empty() {
            return Err(CpuMismatch::HostLacks(Box::new(impossible)));
        }
        if !lost.is_empty() {
            return Err(CpuMismatch::NotConfigured(Box::new(lost)));
        }
        let new = self.features().without(saved);
        if !new.is_empty() {
            return Err(CpuMismatch::NotSaved(Box::new(new)));
        }
        Ok(())
    }
}
