//! The VMI of a machine.

use agent_domain::{Kit, apply_kit};
use agent_objects::{Object, ObjectId, owner_reference};
use proto_node::meta::ObjectMeta;
use proto_node::vmi::{VirtualMachineInstanceTemplateSpec, VirtualMachineSpec};
use proto_node::{from_json, to_json};
use serde_json::{Map, Value};

use super::kit;
use super::view::{FINALIZER, GENERATION_ANNOTATION, VMI};

/// Names the VMI of a machine.
pub(super) fn vmi_id(machine: &Object) -> ObjectId {
    ObjectId {
        kind: String::from(VMI),
        namespace: machine.metadata.namespace.clone(),
        name: machine.metadata.name.clone(),
    }
}

/// The VMI before the store has it.
///
/// # Errors
/// KubeVirt's sentence when the template says what the instance type says, too; what is wrong with a template that cannot
/// be read.
pub(super) fn vmi(
    machine: &Object,
    spec: &VirtualMachineSpec,
    kit: Kit<'_>,
    paused: bool,
) -> Result<Object, String> {
    let template = expanded(machine.at(&["spec", "template"]).cloned(), kit)?;
    let mut metadata = template.metadata.unwrap_or_default();
    kit::annotate(spec, &mut metadata.annotations);
    let mut spec = template.spec.unwrap_or_default();
    if paused {
        "Paused".clone_into(&mut spec.start_strategy);
    }
    let mut annotations = metadata.annotations;
    annotations.insert(
        String::from(GENERATION_ANNOTATION),
        machine.metadata.generation.to_string(),
    );
    let id = vmi_id(machine);
    let mut content = Map::new();
    content.insert(String::from("spec"), to_json(&spec));
    Ok(Object {
        api_version: machine.api_version.clone(),
        kind: id.kind,
        metadata: ObjectMeta {
            name: id.name,
            namespace: id.namespace,
            labels: metadata.labels,
            annotations,
            owner_references: vec![owner_reference(machine)],
            finalizers: vec![FINALIZER.to_owned()],
            ..ObjectMeta::default()
        },
        content,
        ..Object::default()
    })
}

/// A template with instance type and preference applied.
pub(super) fn expanded(
    template: Option<Value>,
    kit: Kit<'_>,
) -> Result<VirtualMachineInstanceTemplateSpec, String> {
    let mut made = template.unwrap_or_else(|| Value::Object(Map::new()));
    if !kit.is_empty() {
        apply_kit(kit, &mut made, "spec").map_err(|paths| {
            format!(
                "VMI conflicts with instancetype spec in fields: [{}]",
                paths.join(", ")
            )
        })?;
    }
    from_json(made).map_err(|errors| {
        let words: Vec<String> = errors.iter().map(ToString::to_string).collect();
        words.join(", ")
    })
}
