//! Features and signatures of named CPU models.

use proto_machine::cpu_models::{NamedModel, Signature};

use super::features::FeatureSet;
use super::leaves::Vendor;

/// Features that a guest of the model has when nothing else is configured.
pub(crate) fn features(model: &NamedModel) -> FeatureSet {
    let lists = model.lists.iter();
    lists
        .map(|list| FeatureSet::of(list))
        .fold(FeatureSet::default(), FeatureSet::with)
}

pub(crate) fn signature_on(model: &NamedModel, vendor: Vendor) -> Signature {
    if vendor.follows_amd() {
        model.signature_amd
    } else {
        model.signature
    }
}

#[cfg(test)]
mod tests {
    use super::super::needs;
    use super::*;

    #[test]
    fn every_feature_of_every_model_has_what_it_needs() {
        for model in NamedModel::all() {
            assert_eq!(needs::first_unmet(&features(model)), None, "{}", model.name);
        }
    }

    #[test]
    fn models_are_supersets_of_the_levels_that_they_are_known_for() {
        let features = |name| features(NamedModel::by_name(name).unwrap());
        let v2 = features("x86-64-v2");
        let v3 = features("x86-64-v3");
        let v4 = features("x86-64-v4");
        assert!(v2.without(v3).is_empty());
        assert!(v3.without(v4).is_empty());
        for name in ["Skylake-Server-noTSX-IBRS", "Cascadelake-Server-noTSX"] {
            let model = features(name);
            assert!(
                v4.without(model).is_empty(),
                "{name}: {}",
                v4.without(model)
            );
        }
    }
}
