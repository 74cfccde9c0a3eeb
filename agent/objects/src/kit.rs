//! The instance type and the preference of a machine, wherever objects are kept.

use agent_domain::{Named, Sort, named};
use proto_node::vmi::{InstancetypeStatusRef, VirtualMachine};
use serde_json::Value;

use crate::object::{Object, ObjectId};

/// Kind of the copies that machines keep.
const REVISION: &str = "ControllerRevision";

/// The label of a copy with the name of what it is a copy of.
pub const REVISION_NAME_LABEL: &str = "instancetype.kubevirt.io/object-name";

/// Label of a copy: the kind of the object.
const REVISION_KIND_LABEL: &str = "instancetype.kubevirt.io/object-kind";

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
    },
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

/// Finds what a machine names: the copy that it asks for, else the one that its status names and that is of this name,
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
        let found = get(&revision_id(&named.revision))?;
        return Ok(found.as_ref().and_then(copy_of).unwrap_or_else(|| {
            let name = &named.revision;
            KitPart::Missing(format!("controllerrevisions.apps {name:?} not found"))
        }));
    }
    if let Some(revision) = noted(machine, sort)
        && let Some(found) = get(&revision_id(&revision))?
        && found.metadata.labels.get(REVISION_NAME_LABEL) == Some(&named.name)
        && found
            .metadata
            .labels
            .get(REVISION_KIND_LABEL)
            .is_none_or(|kind| kind == named.kind)
        && let Some(copy) = copy_of(&found)
    {
        return Ok(copy);
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

fn copy_of(revision: &Object) -> Option<KitPart> {
    Some(KitPart::Copy {
        revision: revision.metadata.name.clone(),
        spec: revision.at(&["data", "spec"])?.clone(),
    })
}

/// The copy that a machine's status names.
fn noted(machine: &VirtualMachine, sort: Sort) -> Option<String> {
    let status = machine.status.as_ref()?;
    let noted: Option<&InstancetypeStatusRef> = match sort {
        Sort::Instancetype => status.instancetype_ref.as_ref(),
        Sort::Preference => status.preference_ref.as_ref(),
    };
    let name = noted?.controller_revision_ref.as_ref()?.name.clone();
    (!name.is_empty()).then_some(name)
}
