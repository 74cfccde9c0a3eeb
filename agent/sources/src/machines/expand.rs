//! A machine with all that its instance type and its preference give it.

use agent_domain::{Kit, Sort, expand_machine};
use agent_objects::{KitPart, Object, ObjectId, find_kit};
use proto_node::node::expand_virtual_machine_request::Of;
use proto_node::node::{
    ExpandVirtualMachineRequest, ExpandVirtualMachineResponse, VirtualMachineName,
};
use proto_node::vmi::VirtualMachine;
use serde_json::Value;
use tonic::Request;

use super::registry::MachineRegistry;
use crate::access::Permit;
use crate::error::ApiError;

const KIND: &str = "VirtualMachine";

/// Expands the machine of a request.
///
/// # Errors
/// [`ApiError::NotFound`] for the machine, [`ApiError::BadRequest`] in KubeVirt's words where it cannot be expanded.
pub(super) fn expanded<R: MachineRegistry>(
    registry: &R,
    request: &Request<ExpandVirtualMachineRequest>,
) -> Result<ExpandVirtualMachineResponse, ApiError> {
    let machine = match &request.get_ref().of {
        Some(Of::Machine(machine)) => {
            let namespace = permitted(request, machine)?;
            let stored = registry.get_object(&ObjectId {
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
    let object = expand(registry, machine)?.to_string().into_bytes();
    Ok(ExpandVirtualMachineResponse { object })
}

/// A machine that a caller gave, in the namespace in which it would be.
fn given(request: &Request<ExpandVirtualMachineRequest>, json: &[u8]) -> Result<Value, ApiError> {
    let bad = |text: String| ApiError::BadRequest(text);
    let mut machine: Value =
        serde_json::from_slice(json).map_err(|error| bad(format!("object is no JSON: {error}")))?;
    let text = |machine: &Value, path: &str| {
        let found = machine.pointer(path).and_then(Value::as_str);
        found.unwrap_or_default().to_owned()
    };
    let kind = text(&machine, "/kind");
    if kind != KIND {
        return Err(bad(format!("object is a {kind:?}, not a {KIND}")));
    }
    let namespace = match text(&machine, "/metadata/namespace") {
        namespace if namespace.is_empty() => String::from("default"),
        namespace => namespace,
    };
    Permit::of(request)?.check(&namespace)?;
    if let Some(Value::Object(metadata)) = machine.get_mut("metadata") {
        metadata.insert(String::from("namespace"), Value::String(namespace));
    } else {
        return Err(bad(String::from("metadata is missing")));
    }
    Ok(machine)
}

fn expand<R: MachineRegistry>(registry: &R, mut machine: Value) -> Result<Value, ApiError> {
    let decoded: VirtualMachine = proto_node::from_json(machine.clone()).map_err(|errors| {
        let words: Vec<String> = errors.iter().map(ToString::to_string).collect();
        ApiError::BadRequest(words.join(", "))
    })?;
    let metadata = decoded.metadata.clone().unwrap_or_default();
    let refuse = |why: &str| {
        ApiError::BadRequest(format!(
            "error expanding VirtualMachine - {} in namespace - {}: {why}",
            metadata.name, metadata.namespace
        ))
    };
    let look = |id: &ObjectId| look(registry, id);
    let mut found = Vec::new();
    for sort in [Sort::Instancetype, Sort::Preference] {
        let part = find_kit(&decoded, sort, look)?;
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
fn look<R: MachineRegistry>(registry: &R, id: &ObjectId) -> Result<Option<Object>, ApiError> {
    match registry.get_object(id) {
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
