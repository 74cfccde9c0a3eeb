//! Defaults that a node generates: they are no part of what a manifest means, and a manifest that
//! carried them would give them to every VMI that is made of it.

use proto_node::to_json;
use proto_node::vmi::VirtualMachineInstance;
use serde_json::Value;

/// Two uids that no VMI has. What differs under them was derived from them.
pub const FIRST_UID: &str = "00000000-0000-4000-8000-000000000001";
pub const OTHER_UID: &str = "00000000-0000-4000-8000-000000000002";

/// In place of the five characters by which a `generateName` becomes a name.
pub const SUFFIX: &str = "00000";

/// The first of two forms of one object, without what differs in the other.
pub fn without(first: &VirtualMachineInstance, other: &VirtualMachineInstance) -> Value {
    let mut whole = to_json(first);
    prune(&mut whole, &to_json(other));
    if let Some(metadata) = whole.get_mut("metadata").and_then(Value::as_object_mut) {
        let is_generated = metadata.contains_key("generateName");
        metadata.retain(|key, _| key != "uid" && (key != "name" || !is_generated));
    }
    whole
}

fn prune(value: &mut Value, other: &Value) {
    match (value, other) {
        (Value::Object(members), Value::Object(others)) => {
            members.retain(|key, member| {
                let Some(counterpart) = others.get(key) else {
                    return false;
                };
                if member.is_object() || member.is_array() {
                    prune(member, counterpart);
                    return true;
                }
                member == counterpart
            });
        }
        (Value::Array(items), Value::Array(others)) => {
            for (item, counterpart) in items.iter_mut().zip(others) {
                prune(item, counterpart);
            }
        }
        _ => {}
    }
}
