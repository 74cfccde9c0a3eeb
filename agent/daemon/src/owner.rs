//! Every object has one owner; another who would change it is refused with the owner's name.

use agent_domain::{Owner, SOURCE_ANNOTATION};
use agent_sources::ApiError;
use proto_node::meta::ObjectMeta;

/// Annotations with this beginning are the agent's and its sources'; a write by others neither sets nor drops them.
pub(crate) const OWN_ANNOTATIONS: &str = "kvmlet.io/";

/// Writes down who owns a new object. What a caller of the service says about that does not count.
pub(crate) fn claim(metadata: &mut ObjectMeta, by: &Owner) {
    if *by == Owner::GrpcCaller {
        metadata
            .annotations
            .retain(|name, _| !name.starts_with(OWN_ANNOTATIONS));
    }
    metadata.annotations.extend(
        by.annotation()
            .map(|value| (SOURCE_ANNOTATION.to_owned(), value)),
    );
}

/// Refuses a change by another than the owner.
///
/// # Errors
/// [`ApiError::Conflict`].
pub(crate) fn check_change(kind: &str, present: &ObjectMeta, by: &Owner) -> Result<(), ApiError> {
    let owner = Owner::of(&present.annotations);
    if owner.allows_change_by(by) {
        Ok(())
    } else {
        Err(refusal(kind, present, &owner))
    }
}

fn refusal(kind: &str, present: &ObjectMeta, owner: &Owner) -> ApiError {
    ApiError::Conflict(format!(
        "{kind} {:?} belongs to {owner}: {}",
        present.name,
        owner.way_out()
    ))
}

/// Refuses a deletion by another than the owner. Objects of a control plane that this node no longer has, since it dials another
/// one or none, belong to nobody.
///
/// # Errors
/// [`ApiError::Conflict`].
pub(crate) fn check_delete(
    (kind, present): (&str, &ObjectMeta),
    by: &Owner,
    control_plane: Option<&str>,
) -> Result<(), ApiError> {
    let owner = Owner::of(&present.annotations);
    let is_abandoned = matches!(&owner, Owner::ControlPlane { name }
        if control_plane != Some(name.as_str()));
    if is_abandoned || owner.allows_delete_by(by) {
        Ok(())
    } else {
        Err(refusal(kind, present, &owner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(source: &str) -> ObjectMeta {
        ObjectMeta {
            name: String::from("web"),
            annotations: [(SOURCE_ANNOTATION.to_owned(), source.to_owned())].into(),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn a_caller_cannot_pass_an_object_off_as_somebody_elses() {
        let mut metadata = of("file:web.yaml");
        claim(&mut metadata, &Owner::GrpcCaller);
        assert_eq!(Owner::of(&metadata.annotations), Owner::GrpcCaller);
    }

    #[test]
    fn a_change_by_another_is_refused_with_the_owners_name() {
        let caller = Owner::GrpcCaller;
        for (source, name) in [
            ("control-plane:north", "\"north\""),
            ("file:web.yaml", "web.yaml"),
        ] {
            let refused = check_change("VirtualMachineInstance", &of(source), &caller)
                .expect_err("is another's");
            assert!(refused.to_string().contains(name), "{refused}");
        }
        assert!(check_change("Secret", &ObjectMeta::default(), &caller).is_ok());
    }
}
