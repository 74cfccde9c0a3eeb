//! Reports on objects to a control plane.

use agent_domain::ObjectSource;
use proto_node::controlplane::Report;
use proto_node::node::{Object, object};

use super::assignments::TOKEN_ANNOTATION;

/// The report on an object; `None` when it is not this control plane's.
pub(super) fn report(control_plane: &str, object: &Object) -> Option<Report> {
    let Some(object::Kind::VirtualMachineInstance(vmi)) = &object.kind else {
        return None;
    };
    let metadata = vmi.metadata.as_ref()?;
    let ObjectSource::ControlPlane { name } = ObjectSource::of(&metadata.annotations) else {
        return None;
    };
    let token = metadata.annotations.get(TOKEN_ANNOTATION);
    (name == control_plane).then(|| Report {
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone(),
        uid: metadata.uid.clone(),
        token: token.and_then(|token| token.parse().ok()).unwrap_or(0),
        gone: false,
        deleting: !metadata.deletion_timestamp.is_empty(),
        unlisted: false,
        status: vmi.status.clone(),
    })
}

/// The same of one that is gone.
pub(super) fn gone(report: Report) -> Report {
    Report {
        gone: true,
        status: None,
        ..report
    }
}

#[cfg(test)]
mod tests {
    use agent_domain::SOURCE_ANNOTATION;
    use proto_node::meta::ObjectMeta;
    use proto_node::vmi::VirtualMachineInstance;

    use super::*;

    fn vmi(source: &str) -> Object {
        let annotations = [
            (SOURCE_ANNOTATION.to_owned(), source.to_owned()),
            (TOKEN_ANNOTATION.to_owned(), String::from("7")),
        ];
        let metadata = ObjectMeta {
            name: String::from("web"),
            annotations: annotations.into(),
            ..ObjectMeta::default()
        };
        Object::from(VirtualMachineInstance {
            metadata: Some(metadata),
            ..VirtualMachineInstance::default()
        })
    }

    #[test]
    fn a_control_plane_hears_of_its_own_objects_only() {
        let own = report("north", &vmi("control-plane:north"));
        assert_eq!(own.map(|own| own.token), Some(7));
        for other in ["control-plane:south", "file:web.yaml", ""] {
            assert_eq!(report("north", &vmi(other)), None);
        }
    }
}
