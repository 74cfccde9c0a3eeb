//! What of a VMI's spec changes while its guest runs: the states of interfaces, and where it may run.

use proto_node::vmi::{Interface, VirtualMachineInstance, VirtualMachineInstanceSpec};
use serde_json::Value;

use crate::object::Object;

/// Where interfaces stand in the spec of a VMI.
const INTERFACES: &str = "/domain/devices/interfaces";

/// A member of the spec that says where a VMI may run.
pub struct PlacementField {
    /// Its name in JSON.
    pub name: &'static str,
    /// Copies it from another spec.
    set: fn(&mut VirtualMachineInstanceSpec, &VirtualMachineInstanceSpec),
}

/// Members of the spec that say where a VMI may run. One that runs stays where it is.
pub const PLACEMENT_FIELDS: [PlacementField; 3] = [
    PlacementField {
        name: "nodeSelector",
        set: |spec, of| spec.node_selector.clone_from(&of.node_selector),
    },
    PlacementField {
        name: "affinity",
        set: |spec, of| spec.affinity.clone_from(&of.affinity),
    },
    PlacementField {
        name: "tolerations",
        set: |spec, of| spec.tolerations.clone_from(&of.tolerations),
    },
];

/// KubeVirt's word for an interface that the guest does not get.
const ABSENT: &str = "absent";

fn text<'a>(interface: &'a Value, member: &str) -> &'a str {
    let value = interface.get(member).and_then(Value::as_str);
    value.unwrap_or_default()
}

fn interfaces(spec: &Value) -> &[Value] {
    let list = spec.pointer(INTERFACES).and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

fn set_state(interface: &mut Value, state: &str) {
    if let Value::Object(members) = interface {
        if state.is_empty() {
            members.shift_remove("state");
        } else {
            members.insert(String::from("state"), Value::from(state));
        }
    }
}

/// The interfaces of a VMI's spec with the states that those of the same names have in a template; `None` when that
/// changes nothing. One that the guest did not get stays absent. One that becomes absent is set down: the NIC goes with
/// the next start.
#[must_use]
pub fn links_of_template(spec: &Value, template: &Value) -> Option<Value> {
    let present = interfaces(spec);
    let follow = |interface: &Value| {
        let mut interface = interface.clone();
        let same_name = |it: &&Value| text(it, "name") == text(&interface, "name");
        let wanted = interfaces(template).iter().find(same_name);
        if let Some(wanted) = wanted.filter(|_| text(&interface, "state") != ABSENT) {
            let state = match text(wanted, "state") {
                ABSENT => "down",
                state => state,
            };
            set_state(&mut interface, state);
        }
        interface
    };
    let followed: Vec<Value> = present.iter().map(follow).collect();
    (followed != present).then(|| Value::from(followed))
}

/// Removes what changes while a guest runs from a template's spec, so that two can be compared by what takes a restart.
pub fn remove_live_fields(template: &mut Value) {
    if let Value::Object(members) = template {
        for place in PLACEMENT_FIELDS {
            members.shift_remove(place.name);
        }
    }
    let list = template
        .pointer_mut(INTERFACES)
        .and_then(Value::as_array_mut);
    for interface in list.into_iter().flatten() {
        if text(interface, "state") != ABSENT {
            set_state(interface, "");
        }
    }
}

/// The present object with the offered one's states of interfaces and places, and nothing else of it.
pub(crate) fn with_live(present: &Object, offered: &Object) -> Object {
    let mut object = present.clone();
    let spec = object.content.get_mut("spec");
    let (Some(spec), Some(offered)) = (spec, offered.content.get("spec")) else {
        return object;
    };
    let list = spec.pointer_mut(INTERFACES).and_then(Value::as_array_mut);
    for interface in list.into_iter().flatten() {
        let same_name = |it: &&Value| text(it, "name") == text(interface, "name");
        if let Some(wanted) = interfaces(offered).iter().find(same_name) {
            let state = text(wanted, "state").to_owned();
            set_state(interface, &state);
        }
    }
    if let Value::Object(members) = spec {
        for PlacementField { name, .. } in PLACEMENT_FIELDS {
            match offered.get(name) {
                Some(place) => drop(members.insert(name.to_owned(), place.clone())),
                None => drop(members.shift_remove(name)),
            }
        }
    }
    object
}

/// Gives a VMI what changes of a spec while a guest runs, as it is in another VMI: where it may run, and the states of
/// interfaces of the same names. The rest stays byte for byte as it was admitted, which a conversion to JSON and back
/// does not promise.
pub fn set_live(vmi: &mut VirtualMachineInstance, of: &VirtualMachineInstance) {
    let (Some(spec), Some(wanted)) = (&mut vmi.spec, &of.spec) else {
        return;
    };
    for place in PLACEMENT_FIELDS {
        (place.set)(spec, wanted);
    }
    let devices = spec
        .domain
        .as_mut()
        .and_then(|domain| domain.devices.as_mut());
    let present = devices
        .into_iter()
        .flat_map(|devices| &mut devices.interfaces);
    for interface in present {
        let same_name = |it: &&Interface| it.name == interface.name;
        if let Some(wanted) = interfaces_of(of).iter().find(same_name) {
            interface.state.clone_from(&wanted.state);
        }
    }
}

/// The interfaces of a VMI.
fn interfaces_of(vmi: &VirtualMachineInstance) -> &[Interface] {
    let spec = vmi.spec.as_ref();
    let devices = spec
        .and_then(|spec| spec.domain.as_ref())
        .and_then(|domain| domain.devices.as_ref());
    devices
        .map(|devices| &*devices.interfaces)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(interfaces: &[(&str, &str)]) -> Value {
        let interface = |(name, state): &(&str, &str)| {
            let mut interface = json!({"name": name, "bridge": {}});
            set_state(&mut interface, state);
            interface
        };
        let all: Vec<Value> = interfaces.iter().map(interface).collect();
        json!({"domain": {"devices": {"interfaces": all}}})
    }

    #[test]
    fn a_guest_follows_the_states_of_its_template_and_nothing_else() {
        let running = spec(&[("a", ""), ("b", "down"), ("c", "absent"), ("d", "up")]);
        let template = spec(&[("d", "absent"), ("c", "up"), ("a", "down"), ("e", "down")]);
        let followed = links_of_template(&running, &template);
        let wanted = spec(&[("a", "down"), ("b", "down"), ("c", "absent"), ("d", "down")]);
        assert_eq!(followed.as_ref(), wanted.pointer(INTERFACES));
        assert_eq!(links_of_template(&wanted, &template), None);
        assert_eq!(links_of_template(&json!({}), &template), None);
    }

    #[test]
    fn templates_differ_by_an_absent_interface_and_by_no_other_state() {
        let compared = |state| {
            let mut template = spec(&[("a", state)]);
            remove_live_fields(&mut template);
            template
        };
        assert_eq!(compared("down"), compared(""));
        assert_eq!(compared("up"), compared(""));
        assert_ne!(compared("absent"), compared(""));
    }

    #[test]
    fn places_are_written_and_the_rest_of_a_spec_is_not() {
        let object = |spec: Value| Object {
            content: [(String::from("spec"), spec)].into_iter().collect(),
            ..Object::default()
        };
        let present = json!({"hostname": "web", "nodeSelector": {"disk": "fast"}, "affinity": {}});
        let offered = json!({"hostname": "db", "nodeSelector": {"disk": "slow"}, "tolerations": [{"key": "a"}]});
        let written = with_live(&object(present), &object(offered));
        let wanted = json!({"hostname": "web", "nodeSelector": {"disk": "slow"}, "tolerations": [{"key": "a"}]});
        assert_eq!(written.content.get("spec"), Some(&wanted));
        let mut compared = wanted;
        remove_live_fields(&mut compared);
        assert_eq!(compared, json!({"hostname": "web"}));
    }

    #[test]
    fn a_message_is_given_what_an_object_is_given() {
        let vmi = |spec: &Value| -> VirtualMachineInstance {
            proto_node::from_json(json!({"spec": spec})).expect("a VMI")
        };
        let mut present = spec(&[("a", ""), ("b", "down")]);
        present["hostname"] = json!("web");
        let mut offered = spec(&[("b", ""), ("a", "down")]);
        let places = [
            ("hostname", json!("db")),
            ("nodeSelector", json!({"disk": "slow"})),
            ("affinity", json!({"nodeAffinity": {}})),
            ("tolerations", json!([{"key": "a"}])),
        ];
        for (name, place) in &places {
            offered[name] = place.clone();
        }
        let object = |spec: &Value| Object {
            content: [(String::from("spec"), spec.clone())].into_iter().collect(),
            ..Object::default()
        };
        let written = with_live(&object(&present), &object(&offered));
        let mut message = vmi(&present);
        set_live(&mut message, &vmi(&offered));
        assert_eq!(message, vmi(&written.content["spec"]));
        assert_ne!(message, vmi(&present));
    }
}
