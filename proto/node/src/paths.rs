//! Paths of fields that have one value, as field selectors name them.

use prost::Name;

use crate::events::Event;
use crate::object::{EVENT_KIND, VMI_KIND};
use crate::schema::{FieldKind, Shape, schema};
use crate::vmi::VirtualMachineInstance;

/// Whether objects of `kind` can have a text, number or truth value at `path`, such as `status.phase` or
/// `metadata.labels.app`.
#[must_use]
pub fn is_value_path(kind: &str, path: &str) -> bool {
    let mut message = match kind {
        VMI_KIND => VirtualMachineInstance::full_name(),
        EVENT_KIND => Event::full_name(),
        _ => return false,
    };
    let mut members = path.split('.');
    while let Some(member) = members.next() {
        let mut fields = schema().message(&message).fields.iter();
        let Some(field) = fields.find(|field| field.name() == member) else {
            return false;
        };
        let has_value = match field.shape {
            Shape::Single => true,
            Shape::List => false,
            Shape::Map => members.next().is_some_and(|key| !key.is_empty()),
        };
        match &field.kind {
            FieldKind::Message(name) if has_value => message.clone_from(name),
            FieldKind::Json => return has_value,
            _ => return has_value && members.next().is_none(),
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_told_from_objects_lists_and_what_is_not_there() {
        for path in [
            "kind",
            "metadata.name",
            "metadata.labels.app",
            "spec.domain.cpu.cores",
            "status.phase",
        ] {
            assert!(is_value_path(VMI_KIND, path), "{path}");
        }
        for path in [
            "",
            "status",
            "status.phse",
            "status.phase.more",
            "metadata.labels",
            "spec.volumes",
            "spec.volumes.name",
            "metadata..name",
        ] {
            assert!(!is_value_path(VMI_KIND, path), "{path}");
        }
        assert!(is_value_path(EVENT_KIND, "involvedObject.name"));
        assert!(!is_value_path("Pod", "metadata.name"));
    }
}
