//! Objects of kinds that nodes do not take, for those who want to know whether they are legal.

use proto_node::cdi::DataVolume;
use proto_node::core::PersistentVolumeClaim;
use proto_node::meta::ObjectMeta;
use proto_node::vmi::{VirtualMachineInstancePreset, VirtualMachineInstancePresetSpec};

use super::defaults::fill_targets;
use super::purpose::AdmissionPurpose;
use super::review::Review;
use super::scheduling::check_selector;
use super::{boot, cdi, disks, metadata, rules, volume_claim};
use crate::error::{Bound, FieldError};

/// The label of claims of which CDI fills in what the class of storage can do.
const RENDERED: (&str, &str) = ("cdi.kubevirt.io/applyStorageProfile", "true");

/// What is illegal in a DataVolume of CDI.
#[must_use]
pub fn judge_data_volume(object: &DataVolume) -> Vec<FieldError> {
    let mut review = Review::new(AdmissionPurpose::NewAnywhere);
    rules::check(object, &["metadata"], &mut review);
    check_metadata(object.metadata.as_ref(), &mut review);
    if let Some(spec) = &object.spec {
        cdi::data_volume(spec, &mut review);
    }
    illegal(review)
}

/// What is illegal in a PersistentVolumeClaim of Kubernetes.
#[must_use]
pub fn judge_claim(object: &PersistentVolumeClaim) -> Vec<FieldError> {
    let mut review = Review::new(AdmissionPurpose::NewAnywhere);
    rules::check(object, &["metadata"], &mut review);
    check_metadata(object.metadata.as_ref(), &mut review);
    let labels = object.metadata.iter().flat_map(|metadata| &metadata.labels);
    let mut labels = labels.map(|(key, value)| (key.as_str(), value.as_str()));
    let is_rendered = labels.any(|label| label == RENDERED);
    let spec = object.spec.clone().unwrap_or_default();
    volume_claim::check(&spec, is_rendered, &mut review);
    illegal(review)
}

/// What is illegal in a VirtualMachineInstancePreset of KubeVirt.
#[must_use]
pub fn judge_preset(object: &VirtualMachineInstancePreset) -> Vec<FieldError> {
    let mut review = Review::new(AdmissionPurpose::NewAnywhere);
    rules::check(object, &["metadata"], &mut review);
    check_metadata(object.metadata.as_ref(), &mut review);
    let spec: VirtualMachineInstancePresetSpec = object.spec.clone().unwrap_or_default();
    check_selector("spec.selector", spec.selector.as_ref(), &mut review);
    match spec.domain {
        Some(mut domain) => {
            // Judged alone: no machine is made of a preset.
            let _ = boot::judge(&domain, &mut review);
            if let Some(devices) = &mut domain.devices {
                fill_targets(&mut devices.disks);
                disks::check_shapes(&devices.disks, &mut review);
            }
        }
        None => review.required("spec.domain", "missing domain."),
    }
    illegal(review)
}

/// What is illegal in the metadata of an object of any kind: names, labels and annotations. The server gives the rest.
#[must_use]
pub fn judge_metadata(given: &ObjectMeta) -> Vec<FieldError> {
    let mut metadata = given.clone();
    if metadata.name.is_empty() && !metadata.generate_name.is_empty() {
        metadata.name = format!("{}x", metadata.generate_name);
    }
    "x".clone_into(&mut metadata.uid);
    metadata::check_metadata(&mut metadata)
}

fn check_metadata(given: Option<&ObjectMeta>, review: &mut Review<'_>) {
    let errors = judge_metadata(&given.cloned().unwrap_or_default());
    review.errors.extend(errors);
}

/// What this release or a node could not honour is no question for a kind that is not there.
fn illegal(review: Review<'_>) -> Vec<FieldError> {
    let mut errors = review.errors;
    errors.retain(|error| error.bound == Bound::Api);
    errors
}
