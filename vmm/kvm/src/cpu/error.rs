//! Why a guest cannot have the CPUs that are asked for.

use super::features::{Feature, FeatureSet};
use proto_machine::hyperv::Enlightenment;

/// CPUs that this host cannot give, or that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuError {
    /// The host is smaller than the model.
    #[error("the CPU model {model} needs {missing}, which this host's KVM cannot provide")]
    ModelTooLarge {
        /// Name of the model.
        model: &'static str,
        /// Features of the model that the host lacks.
        missing: Box<FeatureSet>,
    },
    /// Policy `require`.
    #[error("the CPU feature {feature} is required, but this host's KVM cannot provide it")]
    FeatureMissing {
        /// Number of the policy.
        index: usize,
        /// The feature that the policy names.
        feature: Feature,
    },
    /// Policy `forbid`.
    #[error("the CPU feature {feature} is forbidden, but this host's KVM can provide it")]
    FeatureForbidden {
        /// Number of the policy.
        index: usize,
        /// The feature that the policy names.
        feature: Feature,
    },
    /// One that is asked for is of no use without one that is off.
    #[error("the CPU feature {feature} is asked for, but {need}, which it needs, is off")]
    FeatureNeeds {
        /// Number of the policy.
        index: usize,
        /// The feature that the policy names.
        feature: Feature,
        /// The feature that it depends on.
        need: Feature,
    },
    /// The host's KVM is too old, or the CPU has no VMX.
    #[error("this host's KVM cannot provide Hyper-V's {}", .0.name())]
    HypervMissing(Enlightenment),
    /// An enlightenment that builds upon another.
    #[error("Hyper-V's {} needs {}, which is off", .enlightenment.name(), .need)]
    HypervNeeds {
        /// The enlightenment whose dependency is off.
        enlightenment: Enlightenment,
        /// Name of the enlightenment that it depends on.
        need: &'static str,
    },
    /// A feature of KVM itself.
    #[error("this host's KVM cannot provide its guests with {0}")]
    KvmMissing(KvmFeature),
    /// Something of KVM is asked for while KVM is hidden.
    #[error("{0} is asked for, but KVM is to be hidden")]
    KvmHidden(KvmFeature),
    /// A frequency that the host cannot give its guests.
    #[error(
        "a TSC of {wanted_khz} kHz is asked for; this host has {host_khz} kHz and cannot scale it"
    )]
    TscFrequency {
        /// Asked for.
        wanted_khz: u32,
        /// The host's.
        host_khz: u32,
    },
    /// APIC ids above 254 on a host that cannot.
    #[error(
        "the topology needs APIC ids above 254, for which this host's KVM has no KVM_CAP_X2APIC_API or no x2apic feature is left"
    )]
    NoX2apic,
}

/// Features of KVM that can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvmFeature {
    /// kvmclock.
    Clock,
    /// Paravirtual spin locks.
    Spinlocks,
    /// Paravirtual end of interrupt.
    EndOfInterrupt,
}

impl KvmFeature {
    fn field(self) -> &'static str {
        match self {
            Self::Clock => "kvm.clock",
            Self::Spinlocks => "kvm.spinlocks",
            Self::EndOfInterrupt => "kvm.end_of_interrupt",
        }
    }
}

impl std::fmt::Display for KvmFeature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Clock => "kvmclock",
            Self::Spinlocks => "paravirtual spin locks",
            Self::EndOfInterrupt => "paravirtual end of interrupt",
        })
    }
}

impl CpuError {
    /// Path of what is wrong within the CPUs' configuration.
    #[must_use]
    pub fn field(&self) -> String {
        match self {
            Self::ModelTooLarge { .. } => "model".to_owned(),
            Self::FeatureMissing { index, .. }
            | Self::FeatureForbidden { index, .. }
            | Self::FeatureNeeds { index, .. } => format!("features[{index}].name"),
            Self::HypervMissing(enlightenment) | Self::HypervNeeds { enlightenment, .. } => {
                format!("hyperv.{}", enlightenment.name())
            }
            Self::KvmMissing(feature) | Self::KvmHidden(feature) => feature.field().to_owned(),
            Self::TscFrequency { .. } => "tsc.khz".to_owned(),
            Self::NoX2apic => "sockets".to_owned(),
        }
    }
}
