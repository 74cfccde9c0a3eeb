//! Whether an instance type or a preference is legal by itself.

use proto_node::instancetype as api;

use super::topology::{Across, Topology};
use crate::error::{FieldError, Rule};
use crate::quantity::Quantity;

/// Old names of topologies, and the new ones.
const OLD_TOPOLOGIES: [(&str, &str); 5] = [
    ("preferSockets", "sockets"),
    ("preferCores", "cores"),
    ("preferThreads", "threads"),
    ("preferSpread", "spread"),
    ("preferAny", "any"),
];

/// Judges an instance type; the answer is what is wrong, and advice.
#[must_use]
pub fn judge_instancetype(
    spec: Option<&api::VirtualMachineInstancetypeSpec>,
) -> (Vec<FieldError>, Vec<String>) {
    let Some(spec) = spec else {
        return (vec![missing("spec")], Vec::new());
    };
    let (mut errors, mut warnings) = (Vec::new(), Vec::new());
    match &spec.cpu {
        Some(cpu) if cpu.guest == 0 => errors.push(missing("spec.cpu.guest")),
        Some(_) => {}
        None => errors.push(missing("spec.cpu")),
    }
    match &spec.memory {
        Some(memory) if memory.guest.is_empty() => errors.push(missing("spec.memory.guest")),
        Some(memory) => check_memory(memory, &mut errors),
        None => errors.push(missing("spec.memory")),
    }
    if !spec.launch_security.is_empty() {
        warnings.push(String::from(
            "launchSecurity is deprecated and will be removed in a future release. Use preference instead.",
        ));
    }
    (errors, warnings)
}

fn check_memory(memory: &api::MemoryInstancetype, errors: &mut Vec<FieldError>) {
    const PERCENT: &str = "spec.memory.overcommitPercent";
    for (field, text) in [
        ("spec.memory.guest", &memory.guest),
        ("spec.memory.maxGuest", &memory.max_guest),
    ] {
        if !text.is_empty() && Quantity::parse(text).is_none() {
            let rule = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
            errors.push(FieldError::new(field, Rule::Invalid, rule).value(text));
        }
    }
    let percent = memory.overcommit_percent;
    if !(0..=100).contains(&percent) {
        let message = format!("{PERCENT} '{percent}': must be in range between 0 and 100.");
        errors.push(FieldError::new(PERCENT, Rule::Invalid, message));
    }
    if percent != 0 && memory.hugepages.is_some() {
        let message =
            format!("{PERCENT} and spec.memory.hugepages should not be requested together.");
        errors.push(FieldError::new(PERCENT, Rule::Invalid, message));
    }
}

/// Judges a preference; the answer is what is wrong, and advice.
#[must_use]
pub fn judge_preference(
    spec: Option<&api::VirtualMachinePreferenceSpec>,
) -> (Vec<FieldError>, Vec<String>) {
    let Some(spec) = spec else {
        return (vec![missing("spec")], Vec::new());
    };
    let Some(cpu) = &spec.cpu else {
        return Default::default();
    };
    let (mut errors, mut warnings) = (Vec::new(), Vec::new());
    let name = cpu.preferred_cpu_topology.as_str();
    let topology = Topology::parse(name);
    if !name.is_empty() && topology.is_none() {
        let message = format!("unknown preferredCPUTopology {name}");
        let field = "spec.cpu.preferredCPUTopology";
        errors.push(FieldError::new(field, Rule::Invalid, message));
    }
    if let Some((old, new)) = OLD_TOPOLOGIES.iter().find(|(old, _)| *old == name) {
        warnings.push(format!(
            "PreferredCPUTopology {old} is deprecated for removal in a future release, please use {new} instead"
        ));
    }
    if topology == Some(Topology::Spread) {
        errors.extend(check_spread_options(spec, cpu));
    }
    (errors, warnings)
}

fn check_spread_options(
    spec: &api::VirtualMachinePreferenceSpec,
    cpu: &api::CpuPreferences,
) -> Option<FieldError> {
    let options = cpu.spread_options.clone().unwrap_or_default();
    let Some(across) = Across::parse(&options.across) else {
        let message = format!("across {} is not supported", options.across);
        let field = "spec.cpu.spreadOptions.across";
        return Some(FieldError::new(field, Rule::Invalid, message));
    };
    let old = spec.prefer_spread_socket_to_core_ratio;
    let ratio = options.ratio.unwrap_or(if old == 0 { 2 } else { old });
    let field = "spec.cpu.spreadOptions.ratio";
    if across == Across::CoresThreads && ratio != 2 {
        let message = "only a ratio of 2 (1 core 2 threads) is allowed when spreading vCPUs over cores and threads";
        return Some(FieldError::new(field, Rule::Invalid, message));
    }
    if ratio == 0 {
        let message = "must be greater than or equal to 1";
        return Some(FieldError::new(field, Rule::Invalid, message).value("0"));
    }
    None
}

fn missing(path: &str) -> FieldError {
    FieldError::new(path, Rule::Required, format!("{path} in body is required"))
}
