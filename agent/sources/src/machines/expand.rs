//! A machine with all that its instance type and its preference give it.

use std::fmt::Display;

use agent_domain::{Kit, Sort, expand_machine};
use agent_objects::{KitPart, Object, ObjectId, find_kit};
use proto_node::node::expand_virtual_machine_request::Of;
use proto_node::node::{
    ExpandVirtualMachineRequest, ExpandVirtualMachineResponse, VirtualMachineName,
};
use proto_node::vmi::VirtualMachine;
use serde_json::Value;
use tonic::Request;

use crate::access::Permit;
use crate::error::ApiError;
use crate::objects::ObjectRegistry;

const KIND: &str = "VirtualMachine";

/// Expands the machine of a request.
///
/// # Errors
/// [`ApiError::NotFound`] for the machine, [`ApiError::BadRequest`] in KubeVirt's words where it cannot be expanded.
pub(super) fn expanded<O: ObjectRegistry>(
    objects: &O,
    request: &Request<ExpandVirtualMachineRequest>,
) -> Result<ExpandVirtualMachineResponse, ApiError> {
    let machine = match &request.get_ref().of {
        Some(Of::Machine(machine)) => {
            let namespace = permitted(request, machine)?;
            let stored = objects.get_object(&ObjectId {
                kind: KIND.to_owned(),
                namespace,
                name: machine.name.clone(),
            })?;
            stored.to_json()
        }
        Some(Of::Object(json)) => given(request, json)?,
        None => {
            let text = "a machine is missing: name one that is stored, or give one";
            return Err(ApiError::BadRequest(text.to_owned()));
        }
    };
    let object = expand(objects, machine)?.to_string().into_bytes();
    Ok(ExpandVirtualMachineResponse { object })
}

/// A machine that a caller gave, in the namespace in which it would be.
fn given(request: &Request<ExpandVirtualMachineRequest>, json: &[u8]) -> Result<Value, ApiError> {
    let mut machine: Value = serde_json::from_slice(json).map_err(|error| no_machine(&error))?;
    check(&machine)?;
    let namespace = match text(&machine, "/metadata/namespace") {
        "" => String::from("default"),
        namespace => namespace.to_owned(),
    };
    Permit::of(request)?.check(&namespace)?;
    if let Some(Value::Object(metadata)) = machine.get_mut("metadata") {
        metadata.insert(String::from("namespace"), Value::String(namespace));
    }
    Ok(machine)
}

/// Whether what a caller gave is a machine.
fn check(given: &Value) -> Result<(), ApiError> {
    let kind = text(given, "/kind");
    if kind != KIND {
        return Err(no_machine(&format!("kind is {kind:?}, not {KIND:?}")));
    }
    if !given["metadata"].is_object() {
        return Err(no_machine(&"metadata is missing"));
    }
    decoded(given).map(drop)
}

/// KubeVirt's words, with what is wrong.
fn no_machine(why: &dyn Display) -> ApiError {
    ApiError::BadRequest(format!("Object is not a valid {KIND}: {why}"))
}

fn decoded(machine: &Value) -> Result<VirtualMachine, ApiError> {
    proto_node::from_json(machine.clone()).map_err(|errors| {
        let words: Vec<String> = errors.iter().map(ToString::to_string).collect();
        no_machine(&words.join(", "))
    })
}

fn text<'a>(machine: &'a Value, path: &str) -> &'a str {
    let found = machine.pointer(path).and_then(Value::as_str);
    found.unwrap_or_default()
}

fn expand<O: ObjectRegistry>(objects: &O, mut machine: Value) -> Result<Value, ApiError> {
    let decoded = decoded(&machine)?;
    let metadata = decoded.metadata.clone().unwrap_or_default();
    let refuse = |why: &str| {
        ApiError::BadRequest(format!(
            "error expanding VirtualMachine - {} in namespace - {}: {why}",
            metadata.name, metadata.namespace
        ))
    };
    let find_object = |id: &ObjectId| find_object(objects, id);
    let mut found = Vec::new();
    for sort in [Sort::Instancetype, Sort::Preference] {
        let part = find_kit(&decoded, sort, find_object)?;
        if let KitPart::Missing(why) = &part {
            return Err(refuse(why));
        }
        found.push(part);
    }
    let spec = |index: usize| found.get(index).and_then(KitPart::spec);
    let kit = Kit {
        instancetype: spec(0),
        preference: spec(1),
    };
    expand_machine(kit, &mut machine).map_err(|why| refuse(&why))?;
    Ok(machine)
}

/// An object, if it is there.
fn find_object<O: ObjectRegistry>(objects: &O, id: &ObjectId) -> Result<Option<Object>, ApiError> {
    match objects.get_object(id) {
        Ok(object) => Ok(Some(object)),
        Err(ApiError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The namespace of a machine that is named, and that the caller may know.
pub(super) fn permitted<T>(
    request: &Request<T>,
    machine: &VirtualMachineName,
) -> Result<String, ApiError> {
    if machine.name.is_empty() {
        return Err(ApiError::BadRequest(String::from("name is missing")));
    }
    let namespace = match machine.namespace.as_str() {
        "" => "default",
        namespace => namespace,
    };
    Permit::of(request)?.check(namespace)?;
    Ok(namespace.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_no_machine_is_refused_in_kubevirts_words() {
        let machine =
            |spec: Value| json!({"kind": KIND, "metadata": {"name": "dev"}, "spec": spec});
        let refused = |given: &Value| check(given).err().map(|error| error.to_string());
        assert_eq!(refused(&machine(json!({"runStrategy": "Always"}))), None);
        for (given, why) in [
            (
                json!({"kind": "Foo"}),
                "kind is \"Foo\", not \"VirtualMachine\"",
            ),
            (json!(7), "kind is \"\", not \"VirtualMachine\""),
            (json!({"kind": KIND}), "metadata is missing"),
            (
                machine(json!({"foo": 1, "runStrategy": 5})),
                "spec.foo: unknown field \"spec.foo\", spec.runStrategy: ",
            ),
        ] {
            let said = refused(&given).unwrap_or_default();
            let wanted = format!("Object is not a valid VirtualMachine: {why}");
            assert!(said.starts_with(&wanted), "{said}");
        }
    }
}
