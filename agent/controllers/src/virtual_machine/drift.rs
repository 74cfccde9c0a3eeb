//! How a machine differs from what its guest was made of.

use agent_domain::Kit;
use agent_objects::{Object, remove_live_fields};
use proto_node::to_json;
use serde_json::Value;

use super::make::expanded;
use super::view::Started;

/// KubeVirt's sentences.
const CHANGED: &str = "a non-live-updatable field was changed in the template spec";
const MORE_SOCKETS: &str =
    "CPU sockets updated in template spec to a value higher than what's available";
const FEWER_SOCKETS: &str = "Reduction of CPU socket count requires a restart";
const MEMORY: &str =
    "memory updated in template spec. Memory-hotplug is not available for this VM configuration";

/// How a machine differs from what its guest was made of.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Drift {
    /// Why only a restart brings the guest up to date.
    pub(super) restart: Option<&'static str>,
    /// The spec that a guest would be made of now; none where the template does not fit its instance type.
    pub(super) spec: Option<Value>,
    /// The template is as it was.
    pub(super) is_same_template: bool,
}

/// Compares a machine with what it was at the start of its guest. As KubeVirt does, with instance types and preferences
/// applied: another name for the same size is no reason for a restart. Without a kit what the machine names is not there.
pub(super) fn drift(machine: &Object, started: &Started, kit: Option<Kit<'_>>) -> Drift {
    let now = machine.content.get("spec");
    let then = started.revision.at(&["data", "spec"]);
    let template = |spec: Option<&Value>| spec.and_then(|spec| spec.get("template")).cloned();
    let made = |spec, kit| {
        let made = expanded(template(spec), kit).ok()?;
        Some(to_json(&made.spec.unwrap_or_default()))
    };
    let spec = kit.and_then(|kit| made(now, kit));
    let before = started.kit().and_then(|kit| made(then, kit));
    let restart = match (&spec, before) {
        (Some(spec), Some(before)) => reason(spec.clone(), before),
        _ => (as_written(now) != as_written(then)).then_some(CHANGED),
    };
    Drift {
        restart,
        spec,
        is_same_template: template(now) == template(then),
    }
}

/// Why a guest that was made of one spec has to be restarted for another.
fn reason(mut now: Value, mut then: Value) -> Option<&'static str> {
    remove_live_fields(&mut now);
    remove_live_fields(&mut then);
    if now == then {
        return None;
    }
    let mut take = |part, member| [take(&mut now, part, member), take(&mut then, part, member)];
    let sockets = take("cpu", "sockets");
    let memory = take("memory", "guest");
    if now != then {
        return Some(CHANGED);
    }
    // Where both changed, KubeVirt tells of the memory.
    Some(match (memory, sockets.map(|it| it?.as_u64())) {
        ([now, then], _) if now != then => MEMORY,
        (_, [Some(now), Some(then)]) if now < then => FEWER_SOCKETS,
        _ => MORE_SOCKETS,
    })
}

fn take(spec: &mut Value, part: &str, member: &str) -> Option<Value> {
    let part = spec.get_mut("domain")?.get_mut(part)?;
    part.as_object_mut()?.shift_remove(member)
}

/// What a guest is made of, for a comparison without what it names.
fn as_written(spec: Option<&Value>) -> [Option<Value>; 3] {
    let part = |name: &str| spec.and_then(|spec| spec.get(name)).cloned();
    let mut template = part("template").and_then(|it| it.get("spec").cloned());
    template.iter_mut().for_each(remove_live_fields);
    [template, part("instancetype"), part("preference")]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_changed_is_reported_in_kubevirts_words() {
        let of = |sockets: u64, guest: &str| json!({"domain": {"cpu": {"cores": 2, "sockets": sockets}, "memory": {"guest": guest}}});
        let then = of(2, "1Gi");
        let why = |now: Value| reason(now, then.clone());
        assert_eq!(why(then.clone()), None);
        assert_eq!(why(of(4, "1Gi")), Some(MORE_SOCKETS));
        assert_eq!(why(of(1, "1Gi")), Some(FEWER_SOCKETS));
        assert_eq!(why(of(1, "2Gi")), Some(MEMORY));
        let mut other = of(4, "1Gi");
        other["domain"]["cpu"]["cores"] = json!(3);
        assert_eq!(why(other), Some(CHANGED));
        assert_eq!(why(json!({"domain": {}})), Some(CHANGED));
    }
}
