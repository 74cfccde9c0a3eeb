//! One object of any kind.

use proto_node::meta::{ObjectMeta, OwnerReference};
use proto_node::{DecodeError, append_json, from_json, to_json};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::unknown::UnknownMetadata;

/// Names one object. Kinds have different names whatever their group, so the group is not needed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// Kind, such as `VirtualMachineInstance`.
    pub kind: String,
    /// Namespace; empty for kinds that live in none.
    pub namespace: String,
    /// Unique among the kind's objects in the namespace.
    pub name: String,
}

/// An object: its metadata, and everything else as the JSON tree that its kind's descriptor allows. The tree is what
/// patches and selectors work on, and it also holds fields of objects that a newer server wrote.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Object {
    /// Group and version, such as `kubevirt.io/v1`.
    pub api_version: String,
    /// Kind in CamelCase, such as `VirtualMachineInstance`.
    pub kind: String,
    /// Name, namespace, labels and what else every object has.
    pub metadata: ObjectMeta,
    /// What else a newer server's metadata has.
    pub unknown_metadata: UnknownMetadata,
    /// All other members, such as `spec` and `status`.
    pub content: Map<String, Value>,
}

impl Object {
    /// Splits the JSON form of an object.
    ///
    /// # Errors
    /// What is wrong with its metadata, or that it is no JSON object.
    pub fn from_json(value: Value) -> Result<Self, Vec<DecodeError>> {
        let Value::Object(mut content) = value else {
            return Err(vec![DecodeError {
                path: String::new(),
                message: String::from("an object must be a JSON object"),
            }]);
        };
        let mut text = |name: &str| match content.shift_remove(name) {
            Some(Value::String(text)) => text,
            _ => String::new(),
        };
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let metadata = match content.shift_remove("metadata") {
            Some(metadata @ Value::Object(_)) => from_json(metadata).map_err(in_metadata)?,
            None | Some(Value::Null) => ObjectMeta::default(),
            Some(_) => {
                return Err(vec![DecodeError {
                    path: String::from("metadata"),
                    message: String::from("must be a JSON object"),
                }]);
            }
        };
        Ok(Self {
            api_version,
            kind,
            metadata,
            unknown_metadata: UnknownMetadata::default(),
            content,
        })
    }

    /// The JSON form.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut object = Map::new();
        object.insert(String::from("apiVersion"), self.api_version.clone().into());
        object.insert(String::from("kind"), self.kind.clone().into());
        let mut metadata = to_json(&self.metadata);
        self.unknown_metadata.put_back(&mut metadata);
        object.insert(String::from("metadata"), metadata);
        let content = self.content.iter();
        object.extend(content.map(|(name, value)| (name.clone(), value.clone())));
        Value::Object(object)
    }

    /// The JSON form as text, made without a copy of the object.
    #[must_use]
    pub fn to_text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        text.extend_from_slice(b"{\"apiVersion\":");
        append(&mut text, &self.api_version);
        text.extend_from_slice(b",\"kind\":");
        append(&mut text, &self.kind);
        text.extend_from_slice(b",\"metadata\":");
        if self.unknown_metadata.is_empty() {
            append_json(&self.metadata, &mut text);
        } else {
            let mut metadata = to_json(&self.metadata);
            self.unknown_metadata.put_back(&mut metadata);
            append(&mut text, &metadata);
        }
        for (name, value) in &self.content {
            text.push(b',');
            append(&mut text, name);
            text.push(b':');
            append(&mut text, value);
        }
        text.push(b'}');
        text
    }

    /// Its name.
    #[must_use]
    pub fn id(&self) -> ObjectId {
        ObjectId {
            kind: self.kind.clone(),
            namespace: self.metadata.namespace.clone(),
            name: self.metadata.name.clone(),
        }
    }

    /// The version of the store that wrote it; 0 where that is not known.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.metadata.resource_version.parse().unwrap_or(0)
    }

    /// Whether it is being deleted.
    #[must_use]
    pub const fn is_deleted(&self) -> bool {
        !self.metadata.deletion_timestamp.is_empty()
    }

    /// The value at a path of members, such as `["status", "phase"]`.
    #[must_use]
    pub fn at(&self, path: &[&str]) -> Option<&Value> {
        let (first, rest) = path.split_first()?;
        let mut value = self.content.get(*first)?;
        for member in rest {
            value = value.get(member)?;
        }
        Some(value)
    }

    /// The text at a path of members; empty where there is none.
    #[must_use]
    pub fn text(&self, path: &[&str]) -> &str {
        self.at(path).and_then(Value::as_str).unwrap_or_default()
    }
}

fn append(text: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(text, value).expect("a vector takes all that is written");
}

/// The owner that manages an object, if it has one.
#[must_use]
pub fn controller_of(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    let mut owners = metadata.owner_references.iter();
    owners.find(|owner| owner.controller == Some(true))
}

/// The reference by which an owner controls what it makes.
#[must_use]
pub fn owner_reference(owner: &Object) -> OwnerReference {
    OwnerReference {
        api_version: owner.api_version.clone(),
        kind: owner.kind.clone(),
        name: owner.metadata.name.clone(),
        uid: owner.metadata.uid.clone(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

pub(crate) fn in_metadata(errors: Vec<DecodeError>) -> Vec<DecodeError> {
    let within = |error: DecodeError| DecodeError {
        path: if error.path.is_empty() {
            String::from("metadata")
        } else {
            format!("metadata.{}", error.path)
        },
        message: error.message,
    };
    errors.into_iter().map(within).collect()
}
