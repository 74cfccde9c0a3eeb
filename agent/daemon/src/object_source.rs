//! Every object has one source; a change by another is refused with the name of the source.

use agent_domain::{ObjectSource, SOURCE_ANNOTATION};
use agent_sources::ApiError;
use proto_node::meta::ObjectMeta;

/// Annotations with this beginning are the agent's and its sources'; a write by others neither sets nor drops them.
pub(crate) const OWN_ANNOTATIONS: &str = "kvmlet.io/";

/// Records the source of a new object. An annotation that a caller of the service sets does not count.
pub(crate) fn set_source(metadata: &mut ObjectMeta, by: &ObjectSource) {
    if *by == ObjectSource::GrpcCaller {
        metadata
            .annotations
            .retain(|name, _| !name.starts_with(OWN_ANNOTATIONS));
    }
    metadata.annotations.extend(
        by.annotation()
            .map(|value| (SOURCE_ANNOTATION.to_owned(), value)),
    );
}

/// Refuses a change by another than its source.
///
/// # Errors
/// [`ApiError::Conflict`].
pub(crate) fn check_change(
    kind: &str,
    present: &ObjectMeta,
    by: &ObjectSource,
) -> Result<(), ApiError> {
    let source = ObjectSource::of(&present.annotations);
    if source.allows_change_by(by) {
        Ok(())
    } else {
        Err(refusal(kind, present, &source))
    }
}

fn refusal(kind: &str, present: &ObjectMeta, source: &ObjectSource) -> ApiError {
    ApiError::Conflict(format!(
        "{kind} {:?} belongs to {source}: {}",
        present.name,
        source.way_out()
    ))
}

/// Refuses a deletion by another than its source. Objects of a control plane that this node no longer has, since it dials another
/// one or none, belong to nobody.
///
/// # Errors
/// [`ApiError::Conflict`].
pub(crate) fn check_delete(
    (kind, present): (&str, &ObjectMeta),
    by: &ObjectSource,
    control_plane: Option<&str>,
) -> Result<(), ApiError> {
    let source = ObjectSource::of(&present.annotations);
    let is_abandoned = matches!(&source, ObjectSource::ControlPlane { name }
        if control_plane != Some(name.as_str()));
    if is_abandoned || source.allows_delete_by(by) {
        Ok(())
    } else {
        Err(refusal(kind, present, &source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(annotation: &str) -> ObjectMeta {
        ObjectMeta {
            name: String::from("web"),
            annotations: [(SOURCE_ANNOTATION.to_owned(), annotation.to_owned())].into(),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn a_caller_cannot_pass_an_object_off_as_somebody_elses() {
        let mut metadata = of("file:web.yaml");
        set_source(&mut metadata, &ObjectSource::GrpcCaller);
        assert_eq!(
            ObjectSource::of(&metadata.annotations),
            ObjectSource::GrpcCaller
        );
    }

    #[test]
    fn a_change_by_another_is_refused_with_the_name_of_its_source() {
        let caller = ObjectSource::GrpcCaller;
        for (annotation, name) in [
            ("control-plane:north", "\"north\""),
            ("file:web.yaml", "web.yaml"),
        ] {
            let refused = check_change("VirtualMachineInstance", &of(annotation), &caller)
                .expect_err("is another's");
            assert!(refused.to_string().contains(name), "{refused}");
        }
        assert!(check_change("Secret", &ObjectMeta::default(), &caller).is_ok());
    }
}
