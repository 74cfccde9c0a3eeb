//! Objects between the wire and the ledger.

use std::collections::BTreeMap;

use agent_plan::VmiId;
use agent_sources::{ApiError, Kind, ObjectRef};
use agent_store::{ObjectKey, StoredObject};
use prost::Message;
use proto_node::events::Event;
use proto_node::meta::ObjectMeta;
use proto_node::node::Object;
use proto_node::vmi::VirtualMachineInstance;
use sha2::{Digest, Sha256};

/// KubeVirt's finalizer of a VMI: it goes when nothing of the guest is left on the node.
pub(crate) const FINALIZER: &str = "kubevirt.io/foregroundDeleteVirtualMachine";

/// KubeVirt's default of `terminationGracePeriodSeconds`.
const DEFAULT_GRACE_SECONDS: i64 = 30;

/// The ledger's key of an object.
pub(crate) fn key(target: &ObjectRef) -> ObjectKey {
    ObjectKey {
        kind: target.kind.as_str().to_owned(),
        namespace: target.namespace.clone(),
        name: target.name.clone(),
    }
}

/// Refuses another object of the same name than the caller means; an empty uid means any.
pub(crate) fn check_uid(target: &ObjectRef, uid: &str, row: &StoredObject) -> Result<(), ApiError> {
    if uid.is_empty() || uid == row.uid {
        return Ok(());
    }
    let text = format!("{:?} has uid {}, not {uid}", target.name, row.uid);
    Err(ApiError::Conflict(text))
}

/// The grace period of a VMI unless a request gives another.
pub(crate) fn own_grace_seconds(vmi: &VirtualMachineInstance) -> i64 {
    vmi.spec
        .as_ref()
        .and_then(|spec| spec.termination_grace_period_seconds)
        .unwrap_or(DEFAULT_GRACE_SECONDS)
}

/// Who a VMI is, for its record.
pub(crate) fn vmi_id(metadata: &ObjectMeta) -> VmiId {
    VmiId {
        uid: metadata.uid.clone(),
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone(),
    }
}

/// The row of a VMI.
pub(crate) fn row(mut object: VirtualMachineInstance, version: u64) -> StoredObject {
    let metadata = object.metadata.get_or_insert_default();
    metadata.resource_version = version.to_string();
    let (uid, generation) = (metadata.uid.clone(), metadata.generation);
    let spec_digest = object
        .spec
        .as_ref()
        .map(|spec| Sha256::digest(spec.encode_to_vec()).to_vec());
    StoredObject {
        uid,
        generation,
        resource_version: version,
        spec_digest: spec_digest.unwrap_or_default(),
        object: object.encode_to_vec(),
        sealed: None,
    }
}

/// The row of an event.
pub(crate) fn event_row(mut event: Event, version: u64) -> StoredObject {
    let metadata = event.metadata.get_or_insert_default();
    metadata.resource_version = version.to_string();
    StoredObject {
        uid: metadata.uid.clone(),
        generation: 0,
        resource_version: version,
        spec_digest: Vec::new(),
        object: event.encode_to_vec(),
        sealed: None,
    }
}

/// The VMI of a row.
pub(crate) fn vmi(row: &StoredObject) -> Result<VirtualMachineInstance, ApiError> {
    VirtualMachineInstance::decode(row.object.as_slice()).map_err(|error| undecodable(row, &error))
}

/// The event of a row.
pub(crate) fn event(row: &StoredObject) -> Result<Event, ApiError> {
    Event::decode(row.object.as_slice()).map_err(|error| undecodable(row, &error))
}

/// The object of a row, whatever its kind.
pub(crate) fn object(kind: Kind, row: &StoredObject) -> Result<Object, ApiError> {
    match kind {
        Kind::VirtualMachineInstance => vmi(row).map(Object::from),
        Kind::Event => event(row).map(Object::from),
    }
}

fn undecodable(row: &StoredObject, error: &prost::DecodeError) -> ApiError {
    ApiError::Internal(format!(
        "the object with uid {} cannot be decoded: {error}",
        row.uid
    ))
}

/// The part of a row that all kinds have alike: the metadata of a message is its third field.
#[derive(Clone, PartialEq, prost::Message)]
struct Head {
    #[prost(message, optional, tag = "3")]
    metadata: Option<ObjectMeta>,
}

/// The metadata of a row, whatever its kind.
pub(crate) fn metadata_of(row: &StoredObject) -> Result<ObjectMeta, ApiError> {
    let head = Head::decode(row.object.as_slice()).map_err(|error| undecodable(row, &error))?;
    Ok(head.metadata.unwrap_or_default())
}

/// What selectors look at, where it lies in an [`ObjectMeta`].
#[derive(Clone, PartialEq, prost::Message)]
struct SelectableHead {
    #[prost(message, optional, tag = "3")]
    metadata: Option<Selectable>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Selectable {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "3")]
    namespace: String,
    #[prost(btree_map = "string, string", tag = "11")]
    labels: BTreeMap<String, String>,
}

/// Namespace, name and labels of an object on the wire, whatever its kind; a list asks for no more of most.
pub(crate) fn selectable(object: &[u8]) -> Result<ObjectMeta, ApiError> {
    let head = SelectableHead::decode(object).map_err(|error| {
        ApiError::Internal(format!("an object of a list cannot be decoded: {error}"))
    })?;
    let found = head.metadata.unwrap_or_default();
    Ok(ObjectMeta {
        name: found.name,
        namespace: found.namespace,
        labels: found.labels,
        ..ObjectMeta::default()
    })
}

/// The metadata, or none at all.
pub(crate) fn metadata(object: &VirtualMachineInstance) -> ObjectMeta {
    object.metadata.clone().unwrap_or_default()
}

/// Names a VMI.
pub(crate) fn vmi_ref(metadata: &ObjectMeta) -> ObjectRef {
    ObjectRef {
        kind: Kind::VirtualMachineInstance,
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone(),
    }
}

/// There is no such object.
pub(crate) fn not_found(target: &ObjectRef) -> ApiError {
    ApiError::NotFound {
        kind: target.kind.as_str(),
        namespace: target.namespace.clone(),
        name: target.name.clone(),
    }
}

/// A VMI as an object of any kind.
pub(crate) fn as_object(vmi: &VirtualMachineInstance) -> Result<agent_objects::Object, ApiError> {
    let read = agent_objects::Object::from_json(proto_node::to_json(vmi));
    read.map_err(|errors| {
        let text: Vec<String> = errors.iter().map(ToString::to_string).collect();
        ApiError::Internal(text.join("; "))
    })
}

/// Notes in a VMI whose fields are whose.
pub(crate) fn manage_fields(
    before: Option<VirtualMachineInstance>,
    after: &mut VirtualMachineInstance,
    manager: &agent_objects::Manager<'_>,
) -> Result<(), ApiError> {
    let before = before.as_ref().map(as_object).transpose()?;
    let mut object = as_object(after)?;
    agent_objects::manage(before.as_ref(), &mut object, manager);
    after.metadata.get_or_insert_default().managed_fields = object.metadata.managed_fields;
    Ok(())
}

/// The VMI that a name stands for.
pub(crate) fn is_vmi(target: &ObjectRef) -> bool {
    target.kind == Kind::VirtualMachineInstance
}
