//! Kinds of objects: which message a manifest's `apiVersion` and `kind` stand for.

use crate::decode::{DecodeError, from_node};
use crate::encode::to_json;
use crate::kvmlet::meta::v1::ObjectMeta;
use crate::kvmlet::node::v1::{Object, object};
use crate::tree::Node;
use crate::typed::Tree;

/// Kind of a VMI.
pub const VMI_KIND: &str = "VirtualMachineInstance";
/// API version of a VMI as it is stored and shown.
pub const VMI_API_VERSION: &str = "kubevirt.io/v1";
/// Kind of an event.
pub const EVENT_KIND: &str = "Event";

/// API versions under which a VMI is accepted.
pub const VMI_API_VERSIONS: &[&str] = &[VMI_API_VERSION, "kubevirt.io/v1alpha3"];
/// What an object calls itself, as far as it could be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectName {
    /// Group and version; may be empty.
    pub api_version: String,
    /// Kind; may be empty.
    pub kind: String,
    /// Namespace; empty when not given.
    pub namespace: String,
    /// Name; may be empty.
    pub name: String,
    /// What a server makes a name of; may be empty.
    pub generate_name: String,
}

impl ObjectName {
    pub(crate) fn of(node: &Node) -> Self {
        let text = |node: Option<&Node>| node.and_then(Node::text).unwrap_or_default().to_owned();
        let metadata = node.get("metadata");
        Self {
            api_version: text(node.get("apiVersion")),
            kind: text(node.get("kind")),
            namespace: text(metadata.and_then(|metadata| metadata.get("namespace"))),
            name: text(metadata.and_then(|metadata| metadata.get("name"))),
            generate_name: text(metadata.and_then(|metadata| metadata.get("generateName"))),
        }
    }
}

/// Whether [`Object`] has a message for a kind.
pub(crate) fn has_message(kind: &str) -> bool {
    matches!(kind, VMI_KIND | EVENT_KIND)
}

/// Makes an object of a value.
///
/// # Errors
/// An unknown kind, or all that is wrong with the form of the object.
pub fn decode(node: &Node) -> Result<Object, Vec<DecodeError>> {
    let error = |path: &str, message: String| {
        Err(vec![DecodeError {
            path: path.to_owned(),
            message,
        }])
    };
    let Node::Map(_) = node else {
        return error(
            "",
            format!("must be an object, not {}", node.typed().type_name()),
        );
    };
    let (Some(version), Some(kind)) = (
        node.get("apiVersion").and_then(Node::text),
        node.get("kind").and_then(Node::text),
    ) else {
        let missing = if node.get("kind").and_then(Node::text).is_none() {
            "kind"
        } else {
            "apiVersion"
        };
        return error(missing, format!("{missing} not set"));
    };
    match kind {
        VMI_KIND if VMI_API_VERSIONS.contains(&version) => {
            from_node(node).map(|mut vmi: crate::kubevirt::v1::VirtualMachineInstance| {
                VMI_API_VERSION.clone_into(&mut vmi.api_version);
                Object {
                    kind: Some(object::Kind::VirtualMachineInstance(vmi)),
                }
            })
        }
        EVENT_KIND if version == "v1" => from_node(node).map(|event| Object {
            kind: Some(object::Kind::Event(event)),
        }),
        _ => error(
            "",
            format!("no matches for kind {kind:?} in version {version:?}"),
        ),
    }
}

/// The items of a list: `kind: List`, or a list of one kind such as `SecretList`, whose items need not repeat what they
/// are. Anything else comes back.
pub(crate) fn list_items(node: Node) -> Result<Vec<Node>, Node> {
    let kind = node.get("kind").and_then(Node::text).unwrap_or_default();
    let Some(kind) = kind.strip_suffix("List").map(str::to_owned) else {
        return Err(node);
    };
    if !matches!(node.get("items"), Some(Node::List(_))) {
        return Err(node);
    }
    let version = node.get("apiVersion").and_then(Node::text);
    let version = version.unwrap_or_default().to_owned();
    let Node::Map(members) = node else {
        return Err(node);
    };
    let items = members.into_iter().find_map(|(key, value)| match value {
        Node::List(items) if key == "items" => Some(items),
        _ => None,
    });
    let mut items = items.unwrap_or_default();
    for item in items.iter_mut().filter(|_| !kind.is_empty()) {
        let is_told = item.get("kind").is_some();
        if let (false, Node::Map(members)) = (is_told, item) {
            members.push((String::from("kind"), Node::Text(kind.clone())));
            members.push((String::from("apiVersion"), Node::Text(version.clone())));
        }
    }
    Ok(items)
}

impl Object {
    /// The object's kind; empty when the message holds none.
    #[must_use]
    pub fn kind_name(&self) -> &'static str {
        match &self.kind {
            Some(object::Kind::VirtualMachineInstance(_)) => VMI_KIND,
            Some(object::Kind::Event(_)) => EVENT_KIND,
            None => "",
        }
    }

    /// The object's metadata, where it has some.
    #[must_use]
    pub fn metadata(&self) -> Option<&ObjectMeta> {
        match &self.kind {
            Some(object::Kind::VirtualMachineInstance(vmi)) => vmi.metadata.as_ref(),
            Some(object::Kind::Event(event)) => event.metadata.as_ref(),
            None => None,
        }
    }

    /// The JSON form; `null` when the message holds none.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        match &self.kind {
            Some(object::Kind::VirtualMachineInstance(vmi)) => to_json(vmi),
            Some(object::Kind::Event(event)) => to_json(event),
            None => serde_json::Value::Null,
        }
    }
}

impl From<crate::kubevirt::v1::VirtualMachineInstance> for Object {
    fn from(vmi: crate::kubevirt::v1::VirtualMachineInstance) -> Self {
        Self {
            kind: Some(object::Kind::VirtualMachineInstance(vmi)),
        }
    }
}

impl From<crate::kvmlet::core::v1::Event> for Object {
    fn from(event: crate::kvmlet::core::v1::Event) -> Self {
        Self {
            kind: Some(object::Kind::Event(event)),
        }
    }
}
