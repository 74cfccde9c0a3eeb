//! Paths of fields that have one value, as field selectors name them.

use crate::schema::{FieldKind, Schema, Shape};

impl Schema {
    /// Whether messages of a full name can have a text, number or truth value at `path`, such as `status.phase` or
    /// `metadata.labels.app`.
    #[must_use]
    pub fn is_value_path(&self, message: &str, path: &str) -> bool {
        let mut message = message.to_owned();
        let mut members = path.split('.');
        while let Some(member) = members.next() {
            let mut fields = self.find(&message).into_iter().flat_map(|it| &it.fields);
            let Some(field) = fields.find(|field| field.name() == member) else {
                return false;
            };
            let has_value = match field.shape {
                Shape::Single => true,
                Shape::List => false,
                Shape::Map => members.next().is_some_and(|key| !key.is_empty()),
            };
            match &field.kind {
                FieldKind::Message(name) | FieldKind::Json(Some(name)) if has_value => {
                    message.clone_from(name);
                }
                FieldKind::Json(None) => return has_value,
                _ => return has_value && members.next().is_none(),
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_value_path(message: &str, path: &str) -> bool {
        Schema::this_release().is_value_path(message, path)
    }

    #[test]
    fn values_are_distinguished_from_objects_lists_and_what_is_not_there() {
        for path in [
            "kind",
            "metadata.name",
            "metadata.labels.app",
            "spec.domain.cpu.cores",
            "status.phase",
        ] {
            assert!(
                is_value_path("kubevirt.v1.VirtualMachineInstance", path),
                "{path}"
            );
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
            assert!(
                !is_value_path("kubevirt.v1.VirtualMachineInstance", path),
                "{path}"
            );
        }
        assert!(is_value_path("kvmlet.core.v1.Event", "involvedObject.name"));
        assert!(!is_value_path("kubevirt.v1.Pod", "metadata.name"));
    }
}
