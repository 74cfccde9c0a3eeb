//! VirtualMachines: whether the spec of one can be honoured.

use proto_node::meta::ObjectMeta;
use proto_node::vmi::{
    VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceTemplateSpec, VirtualMachineSpec,
};

use super::review::Review;
use super::{Admitted, Remark, rules};
use crate::derive::{firmware_serial, firmware_uuid};
use crate::{FieldError, NodeCaps, Rule, RunStrategy, Vmi};

/// An admitted machine and what its owner should know.
#[derive(Clone, Debug, PartialEq)]
pub struct AdmittedVirtualMachine {
    /// The object as it is to be stored: with the defaults that KubeVirt stores, and no others.
    pub object: VirtualMachine,
    /// Advice to whoever applies, one sentence each.
    pub warnings: Vec<String>,
    /// Fields that were accepted and have no effect: path and reason.
    pub ignored: Vec<Remark>,
}

/// Admits a machine: its template is judged as the VMI that will be made of it. Without `caps` it is judged for a node
/// that has all that this release can use. So is a machine that does not start by itself: what the node lacks matters
/// when it is started. The server has set `metadata.uid` before.
///
/// # Errors
/// Every rule that is broken.
pub fn admit_virtual_machine(
    mut object: VirtualMachine,
    caps: Option<&NodeCaps>,
) -> Result<AdmittedVirtualMachine, Vec<FieldError>> {
    let mut review = Review::new(caps, true);
    // Metadata is judged for all kinds alike, the status is the controller's, the template is judged as a VMI.
    let left_out = ["metadata", "status", "spec.template"];
    rules::check(&object, &left_out, &mut review);
    let metadata = object.metadata.clone().unwrap_or_default();
    let Some(spec) = object.spec.as_mut() else {
        return Err(review.errors);
    };
    check_run_strategy(spec, &mut review);
    let caps = caps.filter(|_| RunStrategy::of(spec).is_some_and(RunStrategy::starts_by_itself));
    if let Some(template) = spec.template.as_mut() {
        match admit_template(template, &metadata, caps) {
            Ok(admitted) => {
                fill_in(template, &metadata.uid, &admitted);
                let warnings = admitted.warnings.iter();
                review
                    .warnings
                    .extend(warnings.map(|text| of_template(text)));
                let ignored = admitted.ignored.into_iter();
                review.ignored.extend(ignored.map(|remark| Remark {
                    path: format!("spec.template.{}", remark.path),
                    ..remark
                }));
            }
            Err(errors) => {
                for error in errors {
                    review.push(FieldError {
                        path: format!("spec.template.{}", error.path),
                        message: of_template(&error.message),
                        ..error
                    });
                }
            }
        }
    }
    if review.errors.is_empty() {
        Ok(AdmittedVirtualMachine {
            object,
            warnings: review.warnings,
            ignored: review.ignored,
        })
    } else {
        Err(review.errors)
    }
}

/// What is said of a VMI's field, said of the template's.
fn of_template(text: &str) -> String {
    text.replace("spec.domain", "spec.template.spec.domain")
}

fn check_run_strategy(spec: &VirtualMachineSpec, review: &mut Review<'_>) {
    match (&spec.run_strategy, spec.running) {
        (Some(_), Some(running)) => review.invalid(
            "spec.running",
            if running { "true" } else { "false" },
            "Running and RunStrategy are mutually exclusive. Note that Running is deprecated, please use RunStrategy instead",
        ),
        (None, None) => review.push(FieldError::new(
            "spec.running",
            Rule::Invalid,
            "RunStrategy must be specified",
        )),
        (None, Some(_)) => {
            review.warn("spec.running is deprecated, please use spec.runStrategy instead.");
        }
        (Some(_), None) => {}
    }
}

/// Judges the VMI that would be made of a template.
fn admit_template(
    template: &VirtualMachineInstanceTemplateSpec,
    machine: &ObjectMeta,
    caps: Option<&NodeCaps>,
) -> Result<Admitted, Vec<FieldError>> {
    let metadata = template.metadata.clone().unwrap_or_default();
    let example = VirtualMachineInstance {
        metadata: Some(ObjectMeta {
            name: machine.name.clone(),
            namespace: machine.namespace.clone(),
            uid: machine.uid.clone(),
            labels: metadata.labels,
            annotations: metadata.annotations,
            ..ObjectMeta::default()
        }),
        spec: template.spec.clone(),
        ..VirtualMachineInstance::default()
    };
    match caps {
        Some(caps) => Vmi::admit(example, caps),
        None => Vmi::admit_anywhere(example),
    }
}

/// Fills in what KubeVirt stores in a machine: architecture, machine type and the identity of the firmware, which all its
/// VMIs have.
fn fill_in(template: &mut VirtualMachineInstanceTemplateSpec, uid: &str, admitted: &Admitted) {
    let (Some(spec), Some(as_vmi)) = (template.spec.as_mut(), admitted.object.spec.as_ref()) else {
        return;
    };
    spec.architecture.clone_from(&as_vmi.architecture);
    let Some(domain) = spec.domain.as_mut() else {
        return;
    };
    if let Some(as_vmi) = &as_vmi.domain {
        domain.machine.clone_from(&as_vmi.machine);
    }
    let firmware = domain.firmware.get_or_insert_default();
    if firmware.uuid.is_empty() {
        firmware.uuid = firmware_uuid(uid);
    }
    if firmware.serial.is_empty() {
        firmware.serial = firmware_serial(uid);
    }
}
