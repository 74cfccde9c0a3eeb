//! What holds of all manifests, by chance.

#[path = "../common/by_chance.rs"]
mod by_chance;

use agent_domain::{AdmissionPurpose, convert_vmi, default_spec, default_vmi, judge_vmi};
use by_chance::{changed, changes, manifests};
use proptest::prelude::*;
use proto_node::vmi::VirtualMachineInstance;

use super::*;

/// What a manifest says, unless it has another form.
fn decoded(manifest: Value) -> Option<VirtualMachineInstance> {
    from_node(&Node::from(manifest)).ok()
}

fn without_pod_network() -> NodeCaps {
    NodeCaps {
        pod_network: None,
        ..caps()
    }
}

#[test]
fn each_of_the_manifests_that_are_changed_is_admitted() {
    for manifest in manifests() {
        let object = decoded(manifest).unwrap();
        let admitted = Vmi::admit(object, &caps());
        assert!(admitted.is_ok(), "{admitted:#?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn admission_never_panics_and_is_idempotent(
        manifest in prop::sample::select([vec![manifest()], manifests()].concat()),
        changes in changes(),
    ) {
        if let Some(object) = decoded(changed(manifest, changes)) {
            let json = to_json(&object);
            prop_assert_eq!(from_node(&Node::from(json)), Ok(object.clone()));
            match Vmi::admit(object, &caps()) {
                Ok(first) => prop_assert_eq!(Vmi::admit(first.object.clone(), &caps()), Ok(first)),
                Err(errors) => prop_assert!(!errors.is_empty()),
            }
        }
    }

    #[test]
    fn defaults_that_are_filled_in_again_change_nothing(
        manifest in prop::sample::select(manifests()),
        changes in changes(),
    ) {
        let (caps, without) = (caps(), without_pod_network());
        let occasions = [
            AdmissionPurpose::New(&caps),
            AdmissionPurpose::New(&without),
            AdmissionPurpose::NewAnywhere,
            AdmissionPurpose::Stored,
        ];
        for (object, purpose) in decoded(changed(manifest, changes)).into_iter().cycle().zip(occasions) {
            let mut spec = object.spec.clone().unwrap_or_default();
            default_spec(&mut spec, "seed", purpose);
            let first = spec.clone();
            default_spec(&mut spec, "seed", purpose);
            prop_assert_eq!(&spec, &first);
            // What one node filled in is no other than what is filled in later, when the object comes from the ledger.
            default_spec(&mut spec, "seed", AdmissionPurpose::Stored);
            prop_assert_eq!(&spec, &first);
            let once = default_vmi(object, purpose).into_object();
            prop_assert_eq!(default_vmi(once.clone(), purpose).into_object(), once);
        }
    }

    #[test]
    fn what_was_admitted_is_the_same_machine_when_it_comes_from_the_ledger(
        manifest in prop::sample::select(manifests()),
        changes in changes(),
    ) {
        let object = decoded(changed(manifest, changes));
        if let Some(Ok(admitted)) = object.map(|object| Vmi::admit(object, &caps())) {
            let stored = default_vmi(admitted.object.clone(), AdmissionPurpose::Stored);
            prop_assert_eq!(stored.object(), &admitted.object);
            let vmi = judge_vmi(&stored).outcome.map(convert_vmi);
            prop_assert_eq!(vmi, Ok(admitted.vmi));
        }
    }

    #[test]
    fn quantities_of_any_text_never_panic(text in ".{0,60}") {
        let value = with(&[("/spec/domain/memory/guest", json!(text))]);
        let outcome = admit(value);
        prop_assert!(outcome.is_ok() || outcome.is_err_and(|errors| !errors.is_empty()));
    }
}
