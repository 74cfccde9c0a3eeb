//! Which VMIs are a set's: those that it controls and selects. Others that it selects are adopted when nobody controls
//! them, and those that it controls and no longer selects are released.

use std::collections::BTreeSet;

use agent_objects::{
    LabelSelector, Object, Part, Preconditions, Write, controller_of, owner_reference,
};
use proto_node::meta::OwnerReference;
use proto_node::to_json;
use serde_json::{Value, json};

use super::memory::Memory;
use super::view::View;

/// The VMIs of a set.
#[derive(Debug, Default)]
pub(super) struct Claimed<'a> {
    /// The set controls them.
    pub(super) mine: Vec<&'a Object>,
    /// The set is to control them.
    pub(super) adopt: Vec<&'a Object>,
    /// The set controls them no longer.
    pub(super) release: Vec<&'a Object>,
}

/// Sorts the VMIs of a view. Those that the store did not let the controller change are left alone.
pub(super) fn claim<'a>(view: &'a View, selector: &LabelSelector, memory: &Memory) -> Claimed<'a> {
    let mut claimed = Claimed::default();
    let changeable = |vmi: &&Object| !memory.left_alone.contains(&vmi.metadata.uid);
    for vmi in view.vmis.iter().filter(changeable) {
        let selected = selector.matches(&vmi.metadata.labels);
        match controller_of(&vmi.metadata) {
            Some(owner) if owner.uid == view.set.metadata.uid => {
                if selected {
                    claimed.mine.push(vmi);
                } else if !vmi.is_deleted() {
                    claimed.release.push(vmi);
                }
            }
            None if selected && !vmi.is_deleted() && !super::view::is_final(vmi) => {
                claimed.adopt.push(vmi);
            }
            _ => {}
        }
    }
    claimed
}

/// Has the set control a VMI.
pub(super) fn adopt(set: &Object, vmi: &Object) -> Write {
    let mut owners = vmi.metadata.owner_references.clone();
    owners.retain(|owner| owner.uid != set.metadata.uid);
    owners.push(owner_reference(set));
    with_owners(vmi, &owners)
}

/// Has the set control a VMI no longer.
pub(super) fn release(set: &Object, vmi: &Object) -> Write {
    let mut owners = vmi.metadata.owner_references.clone();
    owners.retain(|owner| owner.uid != set.metadata.uid);
    with_owners(vmi, &owners)
}

fn with_owners(vmi: &Object, owners: &[OwnerReference]) -> Write {
    let owners: Vec<Value> = owners.iter().map(to_json).collect();
    let owners = if owners.is_empty() {
        Value::Null
    } else {
        Value::Array(owners)
    };
    Write::Patch {
        id: vmi.id(),
        part: Part::Main,
        patch: json!({"metadata": {"ownerReferences": owners}}),
        // A VMI that changed since may be somebody else's by now.
        preconditions: Preconditions::exactly(&vmi.metadata),
    }
}

/// Names of all VMIs of a view.
pub(super) fn names(view: &View) -> BTreeSet<&str> {
    let names = view.vmis.iter().map(|vmi| vmi.metadata.name.as_str());
    names.collect()
}
