//! Kubernetes' ConfigMap.

use std::collections::BTreeMap;

use agent_domain::{FieldError, Rule};
use proto_node::core::ConfigMap;
use proto_node::from_members;

use super::columns::{AGE, count};
use super::form::misformed;
use crate::data::{check_immutable, check_keys, check_size};
use crate::kind::{Admission, AdmitContext, ObjectKind, Writer};
use crate::object::Object;
use crate::refusal::Refusal;

pub(super) const KIND: ObjectKind = ObjectKind {
    kind: "ConfigMap",
    plural: "configmaps",
    singular: "configmap",
    short_names: &["cm"],
    message: "kvmlet.core.v1.ConfigMap",
    columns: &[count("DATA", "['data','binaryData'].*"), AGE],
    writer: Writer::Objects(judge),
    data: Some(data),
    ..ObjectKind::PLAIN
};

fn data(object: &Object) -> Result<BTreeMap<String, Vec<u8>>, Refusal> {
    let map: ConfigMap = from_members(&object.content).map_err(Refusal::Malformed)?;
    let texts = map.data.into_iter();
    let mut data: BTreeMap<_, _> = texts.map(|(key, text)| (key, text.into_bytes())).collect();
    data.extend(map.binary_data);
    Ok(data)
}

fn judge(object: &Object, context: &AdmitContext<'_>) -> Admission {
    let mut admission = Admission::default();
    let map: ConfigMap = match from_members(&object.content) {
        Ok(map) => map,
        Err(errors) => return misformed(errors),
    };
    let texts = map.data.iter().map(|(key, text)| (key, text.len()));
    let mut bytes = check_keys("data", texts, &mut admission);
    let values = map.binary_data.iter();
    let values = values.map(|(key, value)| (key, value.len()));
    bytes = bytes.saturating_add(check_keys("binaryData", values, &mut admission));
    for key in map
        .data
        .keys()
        .filter(|key| map.binary_data.contains_key(*key))
    {
        let message = "duplicate of key present in binaryData";
        let error = FieldError::new(format!("data[{key}]"), Rule::Invalid, message);
        admission.errors.push(error.value(key));
    }
    check_size("", bytes, &mut admission);
    check_immutable(
        object,
        context.before,
        &["data", "binaryData"],
        &mut admission,
    );
    admission
}
