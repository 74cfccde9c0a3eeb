//! Applying an instance type: its values, and the fields that a machine must then not set.

use serde_json::{Value, json};

use super::quantity_text::{in_form_of, units};
use super::topology;
use super::tree::{Tree, number, text};

/// Applies an instance type to `{metadata, spec}`; the answer is what both say, which is then half applied.
pub(super) fn apply(
    kind: &Value,
    preference: Option<&Value>,
    made: &mut Value,
    field: &str,
) -> Vec<String> {
    let spec = made.made(&["spec"]);
    let mut conflicts = Vec::new();
    let below = |path: &str| format!("{field}.{path}");
    for part in [
        whole(kind, spec, &["nodeSelector"]),
        whole(kind, spec, &["schedulerName"]),
        cpu(kind, preference, spec),
        memory(kind, spec),
        io_threads(kind, spec),
        whole(kind, spec, &["domain", "ioThreadsPolicy"]),
        whole(kind, spec, &["domain", "launchSecurity"]),
        whole(kind, spec, &["domain", "devices", "gpus"]),
        whole(kind, spec, &["domain", "devices", "hostDevices"]),
    ] {
        conflicts.extend(part.iter().map(|path| below(path)));
    }
    conflicts.extend(annotations(kind, made));
    conflicts
}

/// A value that is taken over as it is, where the type has the last name of the path.
fn whole(kind: &Value, spec: &mut Value, path: &[&str]) -> Vec<String> {
    let Some((name, parents)) = path.split_last() else {
        return Vec::new();
    };
    let Some(value) = kind.found(&[name]) else {
        return Vec::new();
    };
    if spec.found(path).is_some() {
        return vec![path.join(".")];
    }
    spec.set(parents, name, value.clone());
    Vec::new()
}

/// What a machine with an instance type must not say at all, and what only where its type says it, too: the names in the
/// machine, the type and messages.
const CPU_ALWAYS: [(&[&str], &str); 5] = [
    (
        &["domain", "resources", "requests", "cpu"],
        "domain.resources.requests.cpu",
    ),
    (
        &["domain", "resources", "limits", "cpu"],
        "domain.resources.limits.cpu",
    ),
    (&["domain", "cpu", "sockets"], "domain.cpu.sockets"),
    (&["domain", "cpu", "cores"], "domain.cpu.cores"),
    (&["domain", "cpu", "threads"], "domain.cpu.threads"),
];
const CPU_BOTH: [(&str, &str); 5] = [
    ("model", "model"),
    ("dedicatedCpuPlacement", "dedicatedCPUPlacement"),
    ("isolateEmulatorThread", "isolateEmulatorThread"),
    ("numa", "numa"),
    ("realtime", "realtime"),
];

fn cpu(kind: &Value, preference: Option<&Value>, spec: &mut Value) -> Vec<String> {
    let always = CPU_ALWAYS
        .iter()
        .filter(|(path, _)| spec.found(path).is_some());
    let mut conflicts: Vec<String> = always.map(|(_, said)| (*said).to_owned()).collect();
    for (name, of_type) in CPU_BOTH {
        // What is false counts as not set, as in KubeVirt's structures.
        let is_set = spec
            .found(&["domain", "cpu", name])
            .is_some_and(|value| *value != Value::Bool(false));
        if is_set && kind.found(&["cpu", of_type]).is_some() {
            conflicts.push(format!("domain.cpu.{of_type}"));
        }
    }
    if !conflicts.is_empty() {
        return conflicts;
    }
    for (name, of_type) in CPU_BOTH {
        if let Some(value) = kind.found(&["cpu", of_type]) {
            spec.set(&["domain", "cpu"], name, value.clone());
        }
    }
    if let Some(most) = kind.found(&["cpu", "maxSockets"]) {
        spec.set(&["domain", "cpu"], "maxSockets", most.clone());
    }
    topology::give(number(kind.found(&["cpu", "guest"])), preference, spec);
    Vec::new()
}

fn memory(kind: &Value, spec: &mut Value) -> Vec<String> {
    let both = |name: &str| kind.found(&["memory", name]).is_some();
    let forbidden: [(&[&str], bool); 5] = [
        (&["domain", "memory", "guest"], true),
        (&["domain", "memory", "hugepages"], both("hugepages")),
        (&["domain", "memory", "maxGuest"], both("maxGuest")),
        (&["domain", "resources", "requests", "memory"], true),
        (&["domain", "resources", "limits", "memory"], true),
    ];
    // KubeVirt names the first alone.
    let first = forbidden
        .iter()
        .find(|(path, counts)| *counts && spec.found(path).is_some());
    if let Some((path, _)) = first {
        return vec![path.join(".")];
    }
    let guest = text(kind.found(&["memory", "guest"])).to_owned();
    spec.set(&["domain", "memory"], "guest", json!(guest));
    let percent = kind.found(&["memory", "overcommitPercent"]);
    let percent = percent.and_then(Value::as_u64).unwrap_or(0);
    if let (Some(bytes), 1..) = (units(&guest), percent) {
        let request = in_form_of(overcommitted(bytes, percent), &guest);
        let requests = ["domain", "resources", "requests"];
        spec.set(&requests, "memory", json!(request));
    }
    for name in ["hugepages", "maxGuest"] {
        if let Some(value) = kind.found(&["memory", name]) {
            spec.set(&["domain", "memory"], name, value.clone());
        }
    }
    Vec::new()
}

/// The request that leaves out so many percent. KubeVirt computes in single precision, and so does this: the request is
/// part of what users see.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "the rounding is the point, and the product is neither negative nor larger than `bytes`"
)]
fn overcommitted(bytes: u64, percent: u64) -> u64 {
    let left = 1.0 - (percent.min(100) as f32) / 100.0;
    ((bytes as f32) * left) as u64
}

fn io_threads(kind: &Value, spec: &mut Value) -> Vec<String> {
    let name = "supplementalPoolThreadCount";
    let Some(count) = kind.found(&["ioThreads", name]) else {
        return Vec::new();
    };
    if spec.found(&["domain", "ioThreads", name]).is_some() {
        return vec![format!("domain.ioThreads.{name}")];
    }
    spec.set(&["domain", "ioThreads"], name, count.clone());
    Vec::new()
}

fn annotations(kind: &Value, made: &mut Value) -> Vec<String> {
    let wanted = kind.found(&["annotations"]).and_then(Value::as_object);
    let mut conflicts = Vec::new();
    for (key, value) in wanted.into_iter().flatten() {
        match made.found(&["metadata", "annotations", key.as_str()]) {
            Some(present) if present != value => conflicts.push(format!("annotations.{key}")),
            Some(_) => {}
            None => made.set(&["metadata", "annotations"], key, value.clone()),
        }
    }
    conflicts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overcommitment_is_computed_in_single_precision() {
        assert_eq!(overcommitted(2 << 30, 15), 1_825_361_152);
        assert_eq!(overcommitted(2 << 30, 100), 0);
        assert_eq!(overcommitted(8 << 30, 50), 4 << 30);
    }
}
