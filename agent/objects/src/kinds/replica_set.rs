//! KubeVirt's VirtualMachineInstanceReplicaSet.

use agent_domain::{FieldError, Rule, Vmi};
use proto_node::meta::ObjectMeta;
use proto_node::vmi::{
    VirtualMachineInstance, VirtualMachineInstanceReplicaSetSpec,
    VirtualMachineInstanceTemplateSpec,
};
use proto_node::{from_json, to_json};

use super::columns::{AGE, integer};
use crate::kind::{Admission, AdmitContext, ObjectKind, Scale, Writer};
use crate::object::Object;
use crate::selector::LabelSelector;

pub(super) const KIND: ObjectKind = ObjectKind {
    group: "kubevirt.io",
    versions: &["v1", "v1alpha3"],
    kind: "VirtualMachineInstanceReplicaSet",
    plural: "virtualmachineinstancereplicasets",
    singular: "virtualmachineinstancereplicaset",
    short_names: &["vmirs", "vmirss"],
    categories: &["all"],
    message: "kubevirt.v1.VirtualMachineInstanceReplicaSet",
    columns: &[
        integer("DESIRED", ".spec.replicas"),
        integer("CURRENT", ".status.replicas"),
        integer("READY", ".status.readyReplicas"),
        AGE,
    ],
    has_status: true,
    scale: Some(Scale {
        spec_replicas: ".spec.replicas",
        status_replicas: ".status.replicas",
        label_selector: ".status.labelSelector",
    }),
    writer: Writer::Objects(judge),
    defaults: Some(fill_in),
    ..ObjectKind::PLAIN
};

/// Fills in the number of replicas.
fn fill_in(object: &mut Object, _: &AdmitContext<'_>) {
    let spec = object.content.get("spec").cloned();
    let spec = spec.and_then(|spec| from_json::<VirtualMachineInstanceReplicaSetSpec>(spec).ok());
    if let Some(mut spec) = spec {
        spec.replicas.get_or_insert(1);
        object.content.insert(String::from("spec"), to_json(&spec));
    }
}

/// Judges selector and template. The template is judged as the VMIs that will be made of it, so that a set is refused rather
/// than left without replicas.
fn judge(object: &Object, context: &AdmitContext<'_>) -> Admission {
    let Some(spec) = object.content.get("spec").cloned() else {
        return refuse(required("spec"));
    };
    let spec: VirtualMachineInstanceReplicaSetSpec = match from_json(spec) {
        Ok(spec) => spec,
        Err(errors) => {
            let within = errors.into_iter().map(|error| {
                FieldError::new(format!("spec.{}", error.path), Rule::Invalid, error.message)
            });
            return Admission {
                errors: within.collect(),
                warnings: Vec::new(),
            };
        }
    };
    let mut admission = Admission::default();
    if let Some(replicas) = spec.replicas.filter(|replicas| *replicas < 0) {
        let error = FieldError::new(
            "spec.replicas",
            Rule::Invalid,
            "must be greater than or equal to 0",
        );
        admission.errors.push(error.value(replicas.to_string()));
    }
    match &spec.template {
        Some(template) => admit_template(template, context, &mut admission),
        None => admission.errors.push(required("spec.template")),
    }
    admit_selector(&spec, &mut admission);
    admission
}

fn admit_selector(spec: &VirtualMachineInstanceReplicaSetSpec, admission: &mut Admission) {
    let Some(selector) = &spec.selector else {
        admission.errors.push(required("spec.selector"));
        return;
    };
    let labels = spec
        .template
        .as_ref()
        .and_then(|template| template.metadata.as_ref())
        .map(|metadata| metadata.labels.clone())
        .unwrap_or_default();
    match LabelSelector::of(selector) {
        Ok(selector) if selector.matches(&labels) => {}
        Ok(_) => admission.errors.push(FieldError::new(
            "spec.selector",
            Rule::Invalid,
            "selector does not match labels.",
        )),
        Err(error) => {
            let error = FieldError::new("spec.selector", Rule::Invalid, error.to_string());
            admission.errors.push(error);
        }
    }
}

fn admit_template(
    template: &VirtualMachineInstanceTemplateSpec,
    context: &AdmitContext<'_>,
    admission: &mut Admission,
) {
    let metadata = template.metadata.clone().unwrap_or_default();
    // Names and identity are given when a VMI is made.
    let example = VirtualMachineInstance {
        metadata: Some(ObjectMeta {
            name: String::from("replica"),
            uid: String::from("00000000-0000-4000-8000-000000000000"),
            labels: metadata.labels,
            annotations: metadata.annotations,
            ..ObjectMeta::default()
        }),
        spec: template.spec.clone(),
        ..VirtualMachineInstance::default()
    };
    let admitted = match context.caps {
        Some(caps) => Vmi::admit(example, &caps()),
        None => Vmi::admit_anywhere(example),
    };
    match admitted {
        Ok(admitted) => admission.warnings.extend(admitted.warnings),
        Err(errors) => {
            let errors = errors.into_iter();
            let errors = errors.map(|error| error.within("spec.template"));
            admission.errors.extend(errors);
        }
    }
}

/// A field that the schema of KubeVirt demands.
fn required(field: &str) -> FieldError {
    FieldError::new(
        field,
        Rule::Required,
        format!("{field} in body is required"),
    )
}

fn refuse(error: FieldError) -> Admission {
    Admission {
        errors: vec![error],
        warnings: Vec::new(),
    }
}
