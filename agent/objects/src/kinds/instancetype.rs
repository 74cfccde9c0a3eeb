//! KubeVirt's instance types and preferences, in a namespace and of the cluster.

use agent_domain::{FieldError, Rule, judge_instancetype, judge_preference};
use proto_node::{DecodeError, from_json};
use serde_json::Value;

use super::columns::AGE;
use crate::kind::{Admission, AdmitContext, ObjectKind, Scope, Writer};
use crate::object::Object;

const TYPE: ObjectKind = ObjectKind {
    group: "instancetype.kubevirt.io",
    versions: &["v1beta1"],
    kind: "VirtualMachineInstancetype",
    plural: "virtualmachineinstancetypes",
    singular: "virtualmachineinstancetype",
    short_names: &["vminstancetype", "vminstancetypes", "vmf", "vmfs"],
    categories: &["all"],
    message: "kubevirt.instancetype.v1beta1.VirtualMachineInstancetype",
    columns: &[AGE],
    writer: Writer::Objects(admit_type),
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
    writer: Writer::Objects(admit_preference),
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

fn admit_type(object: &mut Object, _: &AdmitContext<'_>) -> Admission {
    let spec = object.content.get("spec").cloned().map(from_json);
    judged(
        spec.transpose()
            .map(|spec| judge_instancetype(spec.as_ref())),
    )
}

fn admit_preference(object: &mut Object, _: &AdmitContext<'_>) -> Admission {
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
