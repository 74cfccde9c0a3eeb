//! From a model and policies to a set of features.

use proto_machine::cpu_features::FeaturePolicy;

use super::config::{CpuConfig, CpuModel};
use super::error::CpuError;
use super::features::{Feature, FeatureSet};
use super::host::HostCpu;
use super::{models, needs, xsave};

/// What `host-model` leaves out: a frequency that no other host has, parts of the CPU that KVM lets a
/// guest use only on the host where it started, and what belongs to performance counters.
const NOT_PORTABLE: [&str; 14] = [
    "invtsc",
    "sgx",
    "sgx_lc",
    "intel_pt",
    "cqm",
    "rdt_a",
    "pdcm",
    "dts",
    "dtes64",
    "ds_cpl",
    "arch_lbr",
    "perfctr_core",
    "perfctr_nb",
    "perfctr_llc",
];

/// The guest's features.
pub(crate) fn features(config: &CpuConfig, host: &HostCpu) -> Result<FeatureSet, CpuError> {
    let mut available = host.features();
    if config.model != CpuModel::HostPassthrough {
        available = available.without(xsave::stateless(&host.leaves));
    }
    let set = match config.model {
        CpuModel::HostPassthrough => available,
        CpuModel::HostModel => available.without(FeatureSet::of(&NOT_PORTABLE)),
        CpuModel::Named(model) => models::features(model),
    };
    let set = apply(&config.features, set, &available)?;
    if let CpuModel::Named(model) = config.model {
        let forced = asked_for(config, &[FeaturePolicy::Force]);
        let missing = set.without(available).without(forced);
        if !missing.is_empty() {
            return Err(CpuError::ModelTooLarge {
                model: model.name,
                missing: Box::new(missing),
            });
        }
    }
    close(config, set)
}

fn apply(
    policies: &[(Feature, FeaturePolicy)],
    mut set: FeatureSet,
    available: &FeatureSet,
) -> Result<FeatureSet, CpuError> {
    for (index, (feature, policy)) in policies.iter().copied().enumerate() {
        let is_available = available.contains(feature);
        let is_on = match policy {
            FeaturePolicy::Force => true,
            FeaturePolicy::Require if is_available => true,
            FeaturePolicy::Require => return Err(CpuError::FeatureMissing { index, feature }),
            FeaturePolicy::Optional => is_available,
            FeaturePolicy::Forbid if is_available => {
                return Err(CpuError::FeatureForbidden { index, feature });
            }
            FeaturePolicy::Disable | FeaturePolicy::Forbid => false,
        };
        if is_on {
            set.insert(feature);
        } else {
            set.remove(feature);
        }
    }
    Ok(set)
}

fn asked_for(config: &CpuConfig, policies: &[FeaturePolicy]) -> FeatureSet {
    let wanted = config.features.iter();
    wanted
        .filter(|(_, policy)| policies.contains(policy))
        .map(|(feature, _)| *feature)
        .collect()
}

/// Drops what has not its need, unless it was asked for. That is not only what a policy left behind:
/// some hosts tell of features and not of their needs, as a hypervisor does that took away XSAVE but
/// not AVX, and a guest's kernel that looks at the feature alone would run into a fault.
fn close(config: &CpuConfig, mut set: FeatureSet) -> Result<FeatureSet, CpuError> {
    let wanted = asked_for(config, &[FeaturePolicy::Force, FeaturePolicy::Require]);
    // Each turn drops one feature.
    while let Some((feature, need)) = needs::first_unmet(&set) {
        if wanted.contains(feature) {
            let asked = |(asked, _): &(Feature, FeaturePolicy)| *asked == feature;
            let index = config.features.iter().position(asked).unwrap_or(0);
            return Err(CpuError::FeatureNeeds {
                index,
                feature,
                need,
            });
        }
        set.remove(feature);
    }
    Ok(set)
}
