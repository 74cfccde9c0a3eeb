//! What a host's KVM can give its guests, as a value.

use super::features::FeatureSet;
use super::leaves::Leaves;

/// A host's KVM as far as CPUs are concerned.
#[derive(Clone, Debug)]
pub struct HostCpu {
    /// `KVM_GET_SUPPORTED_CPUID`.
    pub(crate) leaves: Leaves,
    /// `KVM_GET_SUPPORTED_HV_CPUID`, of hosts that have it without a vCPU (Linux 5.11).
    pub(crate) hyperv: Option<Leaves>,
    /// `IA32_ARCH_CAPABILITIES` for guests; 0 where there is none.
    pub(crate) arch_capabilities: u64,
    /// `KVM_CAP_TSC_DEADLINE_TIMER`; older kernels do not say it by CPUID.
    pub(crate) has_tsc_deadline: bool,
    /// `KVM_CAP_X2APIC_API` with both of the flags that APIC ids above 254 need.
    pub(crate) has_x2apic_ids: bool,
    /// Frequency of the TSC and whether guests can have another; known only when it matters.
    pub(crate) tsc: Option<HostTsc>,
}

/// The host's TSC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostTsc {
    pub khz: u32,
    pub can_scale: bool,
}

impl HostCpu {
    /// The features with names that guests can have.
    #[must_use]
    pub fn features(&self) -> FeatureSet {
        let own: &[&str] = if self.has_tsc_deadline {
            &["hypervisor", "tsc_deadline_timer"]
        } else {
            &["hypervisor"]
        };
        FeatureSet::read(&self.leaves, self.arch_capabilities).with(FeatureSet::of(own))
    }
}
