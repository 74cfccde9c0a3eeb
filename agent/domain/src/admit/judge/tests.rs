//! Judges by themselves.

#[path = "../../../tests/common/by_chance.rs"]
mod by_chance;

use by_chance::{changed, changes, manifests};
use proptest::prelude::*;
use proto_node::from_json;
use proto_node::vmi::VirtualMachineInstance;

use super::*;
use crate::admit::defaults::default_vmi;
use crate::admit::purpose::AdmissionPurpose;
use crate::{Lack, MissingFirmware, NodeCaps, PathRules};

/// A node that has little, so that judges have something to say.
fn caps() -> NodeCaps {
    NodeCaps {
        node_name: "node1".to_owned(),
        architecture: "amd64".to_owned(),
        max_vcpus: 2,
        memory_bytes: 1 << 20,
        networks: std::collections::BTreeMap::new(),
        paths: PathRules::default(),
        pod_network: None,
        labels: std::collections::BTreeMap::new(),
        refuse_substitution: true,
        firmware: MissingFirmware {
            bios: Some(Lack {
                why: "no firmware".to_owned(),
                way_out: "install it".to_owned(),
            }),
            efi: None,
        },
    }
}

/// What judges find when they are asked in an order: everything but the order of what they found.
fn asked(
    order: &[usize],
    spec: &VirtualMachineInstanceSpec,
    purpose: AdmissionPurpose<'_>,
) -> ([Vec<String>; 4], Parts) {
    let mut review = Review::new(purpose);
    let mut parts = Parts::default();
    for index in order {
        JUDGES[*index].ask(spec, &mut review, &mut parts);
    }
    let texts = |remarks: &[Remark]| remarks.iter().map(|it| format!("{it:?}")).collect();
    let errors = review.errors.iter().map(|error| format!("{error:?}"));
    let mut found = [
        errors.collect(),
        review.warnings.clone(),
        texts(&review.ignored),
        texts(&review.substituted),
    ];
    found
        .iter_mut()
        .for_each(|list: &mut Vec<String>| list.sort_unstable());
    (found, parts)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_judges_find_does_not_depend_on_their_order(
        manifest in prop::sample::select(manifests()),
        changes in changes(),
        order in Just((0..JUDGES.len()).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let caps = caps();
        let in_order: Vec<usize> = (0..JUDGES.len()).collect();
        let object = from_json::<VirtualMachineInstance>(changed(manifest, changes));
        for purpose in [AdmissionPurpose::New(&caps), AdmissionPurpose::NewAnywhere, AdmissionPurpose::Stored] {
            let Ok(object) = object.clone() else { continue };
            let defaulted = default_vmi(object, purpose);
            if let Some(spec) = &defaulted.object().spec {
                prop_assert_eq!(asked(&in_order, spec, purpose), asked(&order, spec, purpose));
            }
        }
    }
}
