//! KubeVirt's instance types and preferences, in a namespace and of the cluster.

use agent_domain::{
    FieldError, Rule, Sort, judge_instancetype, judge_preference, later_kit_fields,
};
use proto_node::{DecodeError, from_json};
use serde_json::Value;

use super::columns::AGE;
use crate::kind::{Admission, AdmitContext, ObjectKind, Scope, Writer};
use crate::object::Object;

const TYPE: ObjectKind = ObjectKind {
    group: "instancetype.kubevirt.io",
    versions: &["v1beta1", "v1alpha2", "v1alpha1"],
    kind: "VirtualMachineInstancetype",
    plural: "virtualmachineinstancetypes",
    singular: "virtualmachineinstancetype",
    short_names: &["vminstancetype", "vminstancetypes", "vmf", "vmfs"],
    categories: &["all"],
    message: "kubevirt.instancetype.v1beta1.VirtualMachineInstancetype",
    columns: &[AGE],
    convert: Some(convert_type),
    writer: Writer::Objects(judge_type),
    ..ObjectKind::PLAIN
};

pub(super) const NAMESPACED_TYPE: ObjectKind = TYPE;

pub(super) const CLUSTER_TYPE: ObjectKind = ObjectKind {
    kind: "VirtualMachineClusterInstancetype",
    plural: "virtualmachineclusterinstancetypes",
    singular: "virtualmachineclusterinstancetype",
    short_names: &[
        "vmclusterinstancetype",
        "vmclusterinstancetypes",
        "vmcf",
        "vmcfs",
    ],
    categories: &[],
    scope: Scope::Cluster,
    message: "kubevirt.instancetype.v1beta1.VirtualMachineClusterInstancetype",
    ..TYPE
};

pub(super) const NAMESPACED_PREFERENCE: ObjectKind = ObjectKind {
    kind: "VirtualMachinePreference",
    plural: "virtualmachinepreferences",
    singular: "virtualmachinepreference",
    short_names: &["vmpref", "vmprefs", "vmp", "vmps"],
    message: "kubevirt.instancetype.v1beta1.VirtualMachinePreference",
    convert: Some(convert_preference),
    writer: Writer::Objects(judge_preferences),
    ..TYPE
};

pub(super) const CLUSTER_PREFERENCE: ObjectKind = ObjectKind {
    kind: "VirtualMachineClusterPreference",
    plural: "virtualmachineclusterpreferences",
    singular: "virtualmachineclusterpreference",
    short_names: &["vmcp", "vmcps"],
    categories: &[],
    scope: Scope::Cluster,
    message: "kubevirt.instancetype.v1beta1.VirtualMachineClusterPreference",
    ..NAMESPACED_PREFERENCE
};

fn convert_type(version: &str, value: &mut Value) -> Vec<DecodeError> {
    convert(Sort::Instancetype, version, value)
}

fn convert_preference(version: &str, value: &mut Value) -> Vec<DecodeError> {
    convert(Sort::Preference, version, value)
}

/// The older versions have the same form, and fewer fields.
fn convert(sort: Sort, version: &str, value: &Value) -> Vec<DecodeError> {
    let spec = value.get("spec").unwrap_or(&Value::Null);
    let later = later_kit_fields(sort, version, spec).into_iter();
    let unknown = later.map(|field| {
        let path = format!("spec.{field}");
        DecodeError {
            message: format!("unknown field {path:?}"),
            path,
        }
    });
    unknown.collect()
}

fn judge_type(object: &Object, _: &AdmitContext<'_>) -> Admission {
    let spec = object.content.get("spec").cloned().map(from_json);
    judged(
        spec.transpose()
            .map(|spec| judge_instancetype(spec.as_ref())),
    )
}

fn judge_preferences(object: &Object, _: &AdmitContext<'_>) -> Admission {
    let spec: Option<Value> = object.content.get("spec").cloned();
    let spec = spec.map(from_json).transpose();
    judged(spec.map(|spec| judge_preference(spec.as_ref())))
}

fn judged(found: Result<(Vec<FieldError>, Vec<String>), Vec<DecodeError>>) -> Admission {
    match found {
        Ok((errors, warnings)) => Admission { errors, warnings },
        Err(errors) => {
            let within = |error: DecodeError| {
                FieldError::new(format!("spec.{}", error.path), Rule::Invalid, error.message)
            };
            Admission {
                errors: errors.into_iter().map(within).collect(),
                warnings: Vec::new(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::{Kinds, Refusal};

    #[test]
    fn older_versions_are_read_as_the_stored_one_unless_they_say_what_is_later() {
        let kinds = Kinds::this_release();
        let size = json!({"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}});
        let preference = json!({"firmware": {"preferredUseEfi": true}});
        for kind in kinds.all().filter(|kind| kind.group == super::TYPE.group) {
            let is_type = kind.kind.ends_with("nstancetype");
            let (spec, later, path) = if is_type {
                (
                    &size,
                    json!({"cpu": {"maxSockets": 2}}),
                    "spec.cpu.maxSockets",
                )
            } else {
                (
                    &preference,
                    json!({"requirements": {}}),
                    "spec.requirements",
                )
            };
            for version in ["v1alpha1", "v1alpha2"] {
                let object = |spec: &serde_json::Value| {
                    json!({
                        "apiVersion": format!("{}/{version}", kind.group), "kind": kind.kind,
                        "metadata": {"name": "a"}, "spec": spec,
                    })
                };
                let (_, read) = kinds.read(object(spec)).unwrap();
                assert_eq!(read.api_version, "instancetype.kubevirt.io/v1beta1");
                assert_eq!(read.content.get("spec"), Some(spec));
                let Err(Refusal::Malformed(errors)) = kinds.read(object(&later)) else {
                    panic!("{} of {version} has no {path}", kind.kind);
                };
                let errors: Vec<&str> = errors.iter().map(|it| it.message.as_str()).collect();
                assert_eq!(errors, [format!("unknown field {path:?}")], "{}", kind.kind);
                // The version of today has it.
                let mut today = object(&later);
                today["apiVersion"] = json!("instancetype.kubevirt.io/v1beta1");
                assert!(kinds.read(today).is_ok(), "{}: {path}", kind.kind);
            }
        }
    }
}
