//! CPU model and features, and what CPUID shows of KVM.

use std::collections::BTreeSet;

use proto_machine::cpu_features::FeaturePolicy;
use proto_machine::cpu_models::NamedModel;
use proto_node::vmi::{Cpu, DomainSpec, Features};

use super::review::{Review, is_on};
use super::{dedicated, hyperv};
use crate::cpu::{CpuFeature, CpuOptions, KvmOptions};
use crate::error::{Bound, FieldError, Rule};
use crate::vmi::{CpuTopology, Resources};

const CPU: &str = "spec.domain.cpu";
/// More than there are features with names.
const MAX_FEATURES: usize = 256;
const MAX_NAME_BYTES: usize = 64;

/// What the CPUs are beyond their number.
pub(super) fn options(
    domain: &DomainSpec,
    topology: CpuTopology,
    resources: &Resources,
    review: &mut Review<'_>,
) -> Option<CpuOptions> {
    let dedicated = dedicated::dedicated(domain, topology, resources, review);
    let hyperv = hyperv::options(domain, review);
    let kvm = kvm(domain);
    let cpu = &domain.cpu.clone().unwrap_or_default();
    let max_sockets = max_sockets(cpu, topology, review)?;
    model(&cpu.model, review)?;
    if !review.lists_fit(
        &[("spec.domain.cpu.features", cpu.features.len())],
        MAX_FEATURES,
    ) {
        return None;
    }
    let mut features = features(cpu, review);
    let is_vmx =
        |feature: &CpuFeature| proto_machine::cpu_features::named(&feature.name) == Some("vmx");
    if hyperv::needs_vmx(hyperv.as_ref()) && !features.iter().any(is_vmx) {
        features.push(CpuFeature {
            name: "vmx".to_owned(),
            policy: FeaturePolicy::Require,
        });
    }
    Some(CpuOptions {
        model: cpu.model.clone(),
        max_sockets,
        features,
        hyperv,
        kvm,
        dedicated,
    })
}

fn max_sockets(cpu: &Cpu, topology: CpuTopology, review: &mut Review<'_>) -> Option<u32> {
    if cpu.max_sockets == 0 {
        return Some(topology.sockets);
    }
    if topology.sockets > cpu.max_sockets {
        let message =
            "Number of sockets in CPU topology is greater than the maximum sockets allowed";
        let sockets = topology.sockets.to_string();
        review.invalid(&format!("{CPU}.sockets"), &sockets, message);
        return None;
    }
    let most = review.max_vcpus();
    let count = cpu
        .max_sockets
        .checked_mul(topology.cores)
        .and_then(|count| count.checked_mul(topology.threads));
    if count.is_none_or(|count| count > most) {
        let message = format!("a VMI may have at most {most} vCPUs on this node");
        let given = cpu.max_sockets.to_string();
        let error = FieldError::new(format!("{CPU}.maxSockets"), Rule::Invalid, message);
        review.push(
            error
                .value(given)
                .fix("vCPUs are maxSockets × cores × threads")
                .beyond(Bound::Node),
        );
        return None;
    }
    Some(cpu.max_sockets)
}

fn model(name: &str, review: &mut Review<'_>) -> Option<()> {
    if matches!(name, "host-model" | "host-passthrough") || NamedModel::by_name(name).is_some() {
        return Some(());
    }
    let error = FieldError::new(
        format!("{CPU}.model"),
        Rule::NotSupported,
        "not known to this release",
    );
    review.push(error.value(name).fix(format!(
        "use host-model, host-passthrough, {}",
        NamedModel::names()
    )));
    None
}

fn features(cpu: &Cpu, review: &mut Review<'_>) -> Vec<CpuFeature> {
    let mut seen = BTreeSet::new();
    let mut features = Vec::with_capacity(cpu.features.len());
    for (index, feature) in cpu.features.iter().enumerate() {
        let path = format!("{CPU}.features[{index}].name");
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if feature.name.len() > MAX_NAME_BYTES || !feature.name.bytes().all(legal) {
            review.invalid(&path, &feature.name, "must be the name of a CPU feature");
            continue;
        }
        let known = match proto_machine::cpu_features::named(&feature.name) {
            Some(known) => known.to_owned(),
            None if review.is_new() && !feature.name.is_empty() => {
                review.push(unknown_feature(path, &feature.name));
                continue;
            }
            // None at all, which was reported already, or one of another release.
            None => feature.name.clone(),
        };
        if !feature.name.is_empty() && !seen.insert(known) {
            let error = FieldError::new(path, Rule::Duplicate, "a feature has one policy");
            review.push(error.value(&feature.name).beyond(Bound::Release));
            continue;
        }
        // Unknown policies were reported already.
        if let Some(policy) = policy(&feature.policy) {
            features.push(CpuFeature {
                name: feature.name.clone(),
                policy,
            });
        }
    }
    features
}

/// The names are too many to be listed.
fn unknown_feature(path: String, name: &str) -> FieldError {
    FieldError::new(path, Rule::NotSupported, "not known to this release")
        .value(name)
        .fix("docs/cpu-models.md has the names of all features")
}

fn policy(text: &str) -> Option<FeaturePolicy> {
    Some(match text {
        "force" => FeaturePolicy::Force,
        "require" => FeaturePolicy::Require,
        "optional" => FeaturePolicy::Optional,
        "disable" => FeaturePolicy::Disable,
        "forbid" => FeaturePolicy::Forbid,
        _ => return None,
    })
}

fn kvm(domain: &DomainSpec) -> KvmOptions {
    let features: Features = domain.features.clone().unwrap_or_default();
    let timer = domain.clock.as_ref().and_then(|clock| clock.timer.clone());
    let apic = features.apic.unwrap_or_default();
    KvmOptions {
        hidden: features.kvm.is_some_and(|kvm| kvm.hidden),
        clock: timer
            .and_then(|timer| timer.kvm)
            .map(|kvm| kvm.present.unwrap_or(true)),
        spinlocks: features.pvspinlock.as_ref().map(is_on),
        end_of_interrupt: apic.end_of_interrupt.then_some(true),
    }
}
