//! What is asked of a guest's CPUs.

use proto_machine::cpu_features::FeaturePolicy;
use proto_machine::cpu_models::NamedModel;

use super::features::Feature;
use super::hyperv::HypervConfig;
use super::topology::CpuTopology;

/// Where a guest's features come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpuModel {
    /// Everything that the host's KVM supports, features without a name and performance counters
    /// included. Such a guest may see another CPU after each upgrade of the host's kernel.
    #[default]
    HostPassthrough,
    /// The features with names that the host's KVM supports, but those that tie a guest to one host.
    HostModel,
    /// The features of a documented list.
    Named(&'static NamedModel),
}

/// A choice that is the host's unless somebody makes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Toggle {
    /// On if the host's KVM can.
    #[default]
    HostDefault,
    /// Off, whatever the host's KVM can do.
    Off,
    /// On; without it there is no guest.
    On,
}

/// What KVM tells its guests about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvmConfig {
    /// Nothing at all: no signature and no feature of KVM.
    pub hidden: bool,
    /// kvmclock.
    pub clock: Toggle,
    /// Spin locks that let other vCPUs run.
    pub spinlocks: Toggle,
    /// End of interrupt without an exit.
    pub end_of_interrupt: Toggle,
}

/// The guest's time stamp counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TscConfig {
    /// Frequency in kHz; the host's when `None`.
    pub khz: Option<u32>,
    /// Tell the frequency by CPUID leaves 0x15, 0x16 and 0x40000010.
    pub leaves: bool,
}

/// A guest's CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuConfig {
    /// Sockets, cores, threads.
    pub topology: CpuTopology,
    /// Where features come from.
    pub model: CpuModel,
    /// What is different from the model; no feature twice.
    pub features: Vec<(Feature, FeaturePolicy)>,
    /// Hyper-V's enlightenments.
    pub hyperv: HypervConfig,
    /// KVM's own.
    pub kvm: KvmConfig,
    /// Time stamp counter.
    pub tsc: TscConfig,
}

impl CpuConfig {
    /// CPUs like the host's.
    #[must_use]
    pub fn passthrough(topology: CpuTopology) -> Self {
        Self {
            topology,
            model: CpuModel::HostPassthrough,
            features: Vec::new(),
            hyperv: HypervConfig::default(),
            kvm: KvmConfig::default(),
            tsc: TscConfig::default(),
        }
    }
}
