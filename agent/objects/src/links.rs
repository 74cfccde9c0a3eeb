//! States of interfaces: what of a guest's spec changes while it runs.

use serde_json::Value;

use crate::object::Object;

/// Where interfaces stand in the spec of a VMI.
const INTERFACES: &str = "/domain/devices/interfaces";

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
/// changes nothing. One that the guest did not get stays absent. One that becomes absent is set down: the card goes with
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

/// Removes the states that change while a guest runs from a template's interfaces, so that two templates can be compared by
/// what takes a restart.
pub fn forget_links(template: &mut Value) {
    let list = template
        .pointer_mut(INTERFACES)
        .and_then(Value::as_array_mut);
    for interface in list.into_iter().flatten() {
        if text(interface, "state") != ABSENT {
            set_state(interface, "");
        }
    }
}

/// The present object with the states of the offered one's interfaces, and nothing else of it.
pub(crate) fn with_links(present: &Object, offered: &Object) -> Object {
    let mut object = present.clone();
    let Some(spec) = offered.content.get("spec") else {
        return object;
    };
    let list = object
        .content
        .get_mut("spec")
        .and_then(|spec| spec.pointer_mut(INTERFACES))
        .and_then(Value::as_array_mut);
    for interface in list.into_iter().flatten() {
        let same_name = |it: &&Value| text(it, "name") == text(interface, "name");
        if let Some(wanted) = interfaces(spec).iter().find(same_name) {
            let state = text(wanted, "state").to_owned();
            set_state(interface, &state);
        }
    }
    object
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
            forget_links(&mut template);
            template
        };
        assert_eq!(compared("down"), compared(""));
        assert_eq!(compared("up"), compared(""));
        assert_ne!(compared("absent"), compared(""));
    }
}
