//! The instance type and the preference of a machine, wherever objects are kept.

pub(crate) mod copy;

use agent_domain::{KIT_VERSION, Named, Sort, named, upgrade_kit};
use proto_node::meta::ObjectMeta;
use proto_node::vmi::{InstancetypeStatusRef, VirtualMachine};
use serde_json::{Map, Value};

use crate::object::{Object, ObjectId};

/// Kind of the copies that machines keep.
const REVISION: &str = "ControllerRevision";

/// The label of a copy with the name of what it is a copy of.
const REVISION_NAME_LABEL: &str = "instancetype.kubevirt.io/object-name";

/// Others of its labels.
const REVISION_KIND_LABEL: &str = "instancetype.kubevirt.io/object-kind";
const REVISION_UID_LABEL: &str = "instancetype.kubevirt.io/object-uid";
const REVISION_VERSION_LABEL: &str = "instancetype.kubevirt.io/object-version";
const REVISION_GENERATION_LABEL: &str = "instancetype.kubevirt.io/object-generation";

/// What a machine names.
#[derive(Clone, Debug, PartialEq)]
pub enum KitPart {
    /// The machine names no instance type or preference.
    Unnamed,
    /// Something that is not there; KubeVirt's sentence.
    Missing(String),
    /// An object, of which the machine has no copy yet.
    Live(Box<Object>),
    /// The ControllerRevision that the machine keeps of the object.
    Copy {
        /// Name of the ControllerRevision.
        revision: String,
        /// `spec` of the object when the revision was made.
        spec: Value,
        /// What is to take the copy's place where it is of an older version of the API.
        outdated: Option<Box<Outdated>>,
    },
}

/// A copy that is not as this release makes them.
#[derive(Clone, Debug, PartialEq)]
pub struct Outdated {
    /// The ControllerRevision.
    pub revision: ObjectMeta,
    /// The instance type or preference that it keeps, in the version of today.
    pub original: Object,
}

impl KitPart {
    /// `spec` of the object or of its copy; `None` without either.
    #[must_use]
    pub fn spec(&self) -> Option<&Value> {
        match self {
            Self::Unnamed | Self::Missing(_) => None,
            Self::Live(object) => object.content.get("spec"),
            Self::Copy { spec, .. } => Some(spec),
        }
    }
}

/// Finds what a machine names: the copy that it asks for, else the one that its status notes and that is of this name,
/// else the object as it is.
///
/// # Errors
/// What `get` answers.
pub fn find_kit<E>(
    machine: &VirtualMachine,
    sort: Sort,
    mut get: impl FnMut(&ObjectId) -> Result<Option<Object>, E>,
) -> Result<KitPart, E> {
    let spec = machine.spec.clone().unwrap_or_default();
    let named = match named(&spec, sort) {
        Ok(Some(named)) => named,
        Ok(None) => return Ok(KitPart::Unnamed),
        Err(text) => return Ok(KitPart::Missing(text)),
    };
    let namespace = machine
        .metadata
        .as_ref()
        .map(|metadata| metadata.namespace.clone())
        .unwrap_or_default();
    let revision_id = |name: &str| ObjectId {
        kind: REVISION.to_owned(),
        namespace: namespace.clone(),
        name: name.to_owned(),
    };
    if !named.revision.is_empty() {
        return Ok(match get(&revision_id(&named.revision))? {
            Some(found) => copy_in(&found, sort, None),
            None => {
                let name = &named.revision;
                KitPart::Missing(format!("controllerrevisions.apps {name:?} not found"))
            }
        });
    }
    if let Some(noted) = noted(machine, sort)
        && let Some(revision) = &noted.controller_revision_ref
        && !revision.name.is_empty()
        && let Some(found) = get(&revision_id(&revision.name))?
        && is_copy_of(&found, noted, &named)
    {
        return Ok(copy_in(&found, sort, Some(&named)));
    }
    let id = live_id(&named, &namespace);
    Ok(match get(&id)? {
        Some(object) => KitPart::Live(Box::new(object)),
        None => KitPart::Missing(format!(
            "{}s.instancetype.kubevirt.io {:?} not found",
            named.kind.to_lowercase(),
            named.name
        )),
    })
}

fn live_id(named: &Named, namespace: &str) -> ObjectId {
    ObjectId {
        kind: named.kind.to_owned(),
        namespace: if named.is_namespaced {
            namespace.to_owned()
        } else {
            String::new()
        },
        name: named.name.clone(),
    }
}

/// Whether a revision that the status of a machine notes is the copy of what its spec names. The oldest do not say what
/// they are of: the status does.
fn is_copy_of(revision: &Object, noted: &InstancetypeStatusRef, named: &Named) -> bool {
    let labels = &revision.metadata.labels;
    let name = match labels.get(REVISION_NAME_LABEL) {
        Some(name) => name.as_str(),
        None => match revision.text(&["data", "metadata", "name"]) {
            "" => noted.name.as_str(),
            name => name,
        },
    };
    let kind = labels.get(REVISION_KIND_LABEL);
    name == named.name && kind.is_none_or(|kind| kind == named.kind)
}

/// What a revision keeps, for a machine that needs one of this sort. It is outdated if the machine noted it by itself as
/// the copy of what it names: one that its user asks for stays as it is.
fn copy_in(revision: &Object, sort: Sort, noted_for: Option<&Named>) -> KitPart {
    let data = revision.content.get("data").unwrap_or(&Value::Null);
    let mut object = match upgrade_kit(data) {
        Ok(object) => object,
        Err(text) => return KitPart::Missing(text),
    };
    let kind = object.get("kind").and_then(Value::as_str);
    let kind = kind.unwrap_or_default().to_owned();
    if Sort::of_kind(&kind) != Some(sort) {
        return KitPart::Missing(format!(
            "unexpected type in ControllerRevision: *{KIT_VERSION}.{kind}"
        ));
    }
    let spec = object.get_mut("spec").map(Value::take).unwrap_or_default();
    let labels = &revision.metadata.labels;
    let is_current = labels
        .get(REVISION_VERSION_LABEL)
        .is_some_and(|it| it == KIT_VERSION);
    let outdated = noted_for.filter(|_| !is_current).map(|named| {
        let original = original_of(revision, &spec, named);
        Box::new(Outdated {
            revision: revision.metadata.clone(),
            original,
        })
    });
    KitPart::Copy {
        revision: revision.metadata.name.clone(),
        spec,
        outdated,
    }
}

/// The object that an outdated revision keeps, as far as it says what that was.
fn original_of(revision: &Object, spec: &Value, named: &Named) -> Object {
    let kept = |member: &str| revision.at(&["data", "metadata", member]);
    let label = |label: &str| revision.metadata.labels.get(label);
    let uid = kept("uid").and_then(Value::as_str);
    let uid = uid.or_else(|| label(REVISION_UID_LABEL).map(String::as_str));
    let mut content = Map::new();
    content.insert(String::from("spec"), spec.clone());
    Object {
        api_version: format!("instancetype.kubevirt.io/{KIT_VERSION}"),
        kind: named.kind.to_owned(),
        metadata: ObjectMeta {
            name: named.name.clone(),
            namespace: kept("namespace")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            uid: uid.unwrap_or_default().to_owned(),
            generation: kept("generation").and_then(Value::as_i64).unwrap_or(0),
            ..ObjectMeta::default()
        },
        content,
        ..Object::default()
    }
}

/// What a machine's status says of the copy that it has.
fn noted(machine: &VirtualMachine, sort: Sort) -> Option<&InstancetypeStatusRef> {
    let status = machine.status.as_ref()?;
    match sort {
        Sort::Instancetype => status.instancetype_ref.as_ref(),
        Sort::Preference => status.preference_ref.as_ref(),
    }
}
