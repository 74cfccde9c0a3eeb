//! Manifests: YAML or JSON text with any number of objects.

use std::str::FromStr;

use serde::de::DeserializeSeed;
use serde_saphyr::DuplicateKeyPolicy;

use crate::decode::DecodeError;
use crate::kubevirt::v1::VirtualMachineInstance;
use crate::kvmlet::node::v1::{Object, object::Kind};
use crate::object::{self, ObjectName, VMI_KIND};
use crate::tree::{Node, NodeSeed, ReadPosition, path_segment};
use crate::yaml;
pub use crate::yaml::MAX_MANIFEST_BYTES;

/// The most objects that one manifest may hold.
pub const MAX_OBJECTS: usize = 1024;

/// One object of a manifest, or why it is none. A bad object does not spoil its neighbours.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Line of the manifest at which its document starts, from 1.
    pub line: usize,
    /// Kind, namespace and name as far as they could be read, for messages.
    pub name: ObjectName,
    /// The object, or all that is wrong with its form.
    pub object: Result<Object, Vec<DecodeError>>,
    /// The value, when it is of a kind that [`Object`] has no message for; an agent may serve it all the same.
    pub other: Option<serde_json::Value>,
    /// It is YAML or JSON, whatever it says; a key that is there twice is no reason not to be.
    pub is_readable: bool,
}

/// Why a manifest as a whole was not read.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// It is too large.
    #[error("is {bytes} bytes long; at most {MAX_MANIFEST_BYTES} are read")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// It is not text.
    #[error("is not UTF-8 text (byte {offset})")]
    NotText {
        /// The first byte that is not.
        offset: usize,
    },
    /// It holds too many objects.
    #[error("holds more than {MAX_OBJECTS} objects")]
    TooManyObjects,
}

/// Reads a manifest. Documents of comments or nothing are left out; a `kind: List` counts as its items.
///
/// # Errors
/// When the manifest as a whole cannot be read. What is wrong with one object is in its [`Document`].
pub fn parse(bytes: &[u8]) -> Result<Vec<Document>, ManifestError> {
    if bytes.len() > MAX_MANIFEST_BYTES {
        return Err(ManifestError::TooLarge { bytes: bytes.len() });
    }
    let text = std::str::from_utf8(bytes).map_err(|error| ManifestError::NotText {
        offset: error.valid_up_to(),
    })?;
    let mut documents = Vec::new();
    if let Some(nodes) = parse_json_stream(text) {
        for node in nodes {
            expand(1, node, &mut documents)?;
        }
        return Ok(documents);
    }
    for (line, part) in split_documents(text) {
        match yaml::parse(part, line, DuplicateKeyPolicy::Error) {
            Ok(Node::Null) => {}
            Ok(node) => expand(line, node, &mut documents)?,
            Err(error) => documents.push(malformed(part, line, error)),
        }
    }
    Ok(documents)
}

/// Why a manifest is not one object.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// It was not read.
    #[error("the manifest {0}")]
    Manifest(#[from] ManifestError),
    /// It holds none, or several.
    #[error("the manifest holds {0} objects, not one")]
    Count(usize),
    /// All that is wrong with the object's form.
    #[error("{}", joined(.0))]
    Form(Vec<DecodeError>),
    /// It is of another kind.
    #[error("kind: must be {VMI_KIND}")]
    Kind,
}

fn joined(errors: &[DecodeError]) -> String {
    let words: Vec<String> = errors.iter().map(ToString::to_string).collect();
    words.join("; ")
}

impl FromStr for Object {
    type Err = ObjectError;

    /// Of a manifest that holds this object and no other.
    fn from_str(manifest: &str) -> Result<Self, ObjectError> {
        let mut documents = parse(manifest.as_bytes())?;
        let count = documents.len();
        match (documents.pop(), count) {
            (Some(document), 1) => document.object.map_err(ObjectError::Form),
            _ => Err(ObjectError::Count(count)),
        }
    }
}

impl FromStr for VirtualMachineInstance {
    type Err = ObjectError;

    /// Of a manifest that holds this object and no other.
    fn from_str(manifest: &str) -> Result<Self, ObjectError> {
        match manifest.parse::<Object>()?.kind {
            Some(Kind::VirtualMachineInstance(vmi)) => Ok(vmi),
            _ => Err(ObjectError::Kind),
        }
    }
}

/// Reads one value, such as a patch: JSON, or YAML of one document.
///
/// # Errors
/// Why it cannot be read.
pub fn value(bytes: &[u8]) -> Result<serde_json::Value, String> {
    if bytes.len() > MAX_MANIFEST_BYTES {
        let bytes = bytes.len();
        return Err(ManifestError::TooLarge { bytes }.to_string());
    }
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let node = match parse_json_stream(text) {
        Some(mut nodes) if nodes.len() == 1 => nodes.pop().unwrap_or(Node::Null),
        Some(_) => return Err(String::from("it must be one value")),
        None => {
            yaml::parse(text, 1, DuplicateKeyPolicy::Error).map_err(|error| error.to_string())?
        }
    };
    Ok(node.to_json())
}

/// JSON values one after the other, when the whole text is that.
fn parse_json_stream(text: &str) -> Option<Vec<Node>> {
    if !text.trim_start().starts_with(['{', '[']) {
        return None;
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let mut nodes = Vec::new();
    loop {
        if deserializer.end().is_ok() {
            return Some(nodes);
        }
        let place = ReadPosition::default();
        nodes.push(NodeSeed::new(&place).deserialize(&mut deserializer).ok()?);
    }
}

/// The documents of a YAML stream with their first lines, split as Kubernetes does: at lines that
/// begin with `---`.
fn split_documents(text: &str) -> Vec<(usize, &str)> {
    let mut parts = Vec::new();
    let (mut start, mut start_line, mut offset) = (0, 1, 0);
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let separates = line
            .strip_prefix("---")
            .is_some_and(|rest| rest.trim_start().is_empty() || rest.starts_with([' ', '\t']));
        if separates {
            if offset > start {
                parts.push((start_line, &text[start..offset]));
            }
            // What follows the marker on its line belongs to the document.
            start = offset + "---".len();
            start_line = index + 1;
        }
        offset += line.len();
    }
    parts.push((start_line, &text[start..]));
    parts
}

/// A document that is not to be read. When a key that is there twice is all that is wrong, what it
/// calls itself is known.
fn malformed(text: &str, line: usize, error: DecodeError) -> Document {
    let Ok(node) = yaml::parse(text, line, DuplicateKeyPolicy::FirstWins) else {
        return Document {
            line,
            name: ObjectName::default(),
            object: Err(vec![error]),
            other: None,
            is_readable: false,
        };
    };
    Document {
        line,
        name: ObjectName::of(&node),
        object: Err(vec![duplicate(error)]),
        other: None,
        is_readable: true,
    }
}

/// The parser names the key in words of its own; these are kubectl's.
fn duplicate(error: DecodeError) -> DecodeError {
    let Some((place, rest)) = error.message.split_once("duplicate mapping key: ") else {
        return error;
    };
    let key = path_segment(rest.split(", set ").next().unwrap_or_default());
    let path = if error.path.is_empty() {
        key
    } else {
        format!("{}.{key}", error.path)
    };
    DecodeError {
        message: format!("{place}duplicate field {path:?}"),
        path,
    }
}

/// The objects of a document: itself, or the items of a list.
fn expand(line: usize, node: Node, documents: &mut Vec<Document>) -> Result<(), ManifestError> {
    let items = match object::list_items(node) {
        Ok(items) => items,
        Err(node) => vec![node],
    };
    for item in items {
        if documents.len() >= MAX_OBJECTS {
            return Err(ManifestError::TooManyObjects);
        }
        let name = ObjectName::of(&item);
        let is_other = !name.kind.is_empty() && !object::has_message(&name.kind);
        documents.push(Document {
            line,
            object: object::decode(&item),
            other: is_other.then(|| item.to_json()),
            name,
            is_readable: true,
        });
    }
    Ok(())
}
