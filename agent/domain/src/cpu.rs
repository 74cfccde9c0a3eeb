//! What a guest's CPUs and clocks are.

use std::collections::BTreeSet;

use proto_machine::cpu_features::FeaturePolicy;
use proto_machine::hyperv::Enlightenment;

/// What a guest's CPUs are beyond their number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuOptions {
    /// `host-model`, `host-passthrough`, or one of [`NamedModel::all`](proto_machine::cpu_models::NamedModel::all).
    pub model: String,
    /// Sockets that there may ever be, at least those that there are.
    pub max_sockets: u32,
    /// What is different from the model; no feature twice.
    pub features: Vec<CpuFeature>,
    /// What CPUID shows of Hyper-V; `None`: nothing.
    pub hyperv: Option<HypervOptions>,
    /// What CPUID shows of KVM.
    pub kvm: KvmOptions,
    /// CPUs of the node that it has for itself; `None`: it shares them with others.
    pub dedicated: Option<DedicatedCpus>,
}

/// A guest that has a CPU of the node for each vCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DedicatedCpus {
    /// One more CPU, for the VMM's other threads.
    pub isolate_emulator: bool,
    /// The guest's NUMA nodes are those of its CPUs.
    pub numa_passthrough: bool,
}

/// A feature that is not as the model has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuFeature {
    /// One of [`proto_machine::cpu_features::WORDS`] in any spelling; at most 64 of `[A-Za-z0-9._-]`.
    pub name: String,
    /// Whether the guest has it, and whether the host must.
    pub policy: FeaturePolicy,
}

/// Hyper-V's enlightenments. Nothing is on whose need is off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HypervOptions {
    /// All that the host has.
    pub passthrough: bool,
    /// The enlightenments that the guest is offered, but for spin locks, which have a number, and the crash registers, which
    /// come with a panic device.
    pub enlightenments: BTreeSet<Enlightenment>,
    /// Tries for a spin lock, at least 4096; 0: the guest never calls the hypervisor.
    pub spinlock_retries: u32,
    /// Signature, at most 12 bytes of printable ASCII; empty: Hyper-V's own.
    pub vendor: String,
}

/// What CPUID shows of KVM. `None` of each: if the host has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvmOptions {
    /// Nothing at all.
    pub hidden: bool,
    /// KVM's clock.
    pub clock: Option<bool>,
    /// Paravirtual spin locks.
    pub spinlocks: Option<bool>,
    /// Paravirtual end of interrupt.
    pub end_of_interrupt: Option<bool>,
}

/// A guest's clocks that are not its CPUs'.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockOptions {
    /// What the real-time clock shows.
    pub time: ClockTime,
    /// There is a PIT.
    pub pit: bool,
    /// Ticks of the PIT that the guest could not take in time are lost.
    pub pit_discards_missed_ticks: bool,
}

impl Default for ClockOptions {
    fn default() -> Self {
        Self {
            time: ClockTime::Utc { offset_seconds: 0 },
            pit: true,
            pit_discards_missed_ticks: false,
        }
    }
}

/// What a real-time clock shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClockTime {
    /// UTC and some seconds, less than 100 years.
    Utc {
        /// Seconds that the guest's clock is ahead of UTC.
        offset_seconds: i64,
    },
    /// Local time of a zone, as the node knows it when the guest is started.
    Zone {
        /// Such as `Europe/Berlin`; at most 64 of `[A-Za-z0-9_+-/]`, relative, without `..`.
        name: String,
    },
}
