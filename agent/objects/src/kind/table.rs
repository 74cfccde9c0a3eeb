//! The table of kinds.

use std::sync::OnceLock;

use proto_node::meta::ObjectMeta;
use proto_node::{DecodeError, LastJson, Schema, from_json_lenient, to_json};
use serde_json::Value;

use super::ObjectKind;
use crate::data::redact;
use crate::kinds;
use crate::object::{Object, in_metadata};
use crate::refusal::Refusal;
use crate::unknown::UnknownMetadata;

/// Full name of the message of metadata.
const METADATA: &str = "kvmlet.meta.v1.ObjectMeta";

/// The table. There is one of each release; tests add kinds of their own to it.
pub struct Kinds {
    schema: &'static Schema,
    kinds: Vec<ObjectKind>,
}

/// What texts that are written one after another share.
#[derive(Debug, Default)]
pub struct LastText {
    json: LastJson,
    buffer: Vec<u8>,
}

pub(super) static SERVED: OnceLock<Kinds> = OnceLock::new();

impl Kinds {
    /// The kinds that this process serves: those of this release, unless others were installed.
    #[must_use]
    pub fn this_release() -> &'static Self {
        SERVED.get_or_init(Self::built_in)
    }

    /// The kinds that this release is built with.
    #[must_use]
    pub fn built_in() -> Self {
        Self::new(Schema::this_release(), kinds::ALL.to_vec())
    }

    /// Has this process serve another table, before anybody asks for one.
    ///
    /// # Errors
    /// The table, when somebody has asked already.
    pub fn install(kinds: Self) -> Result<(), Self> {
        SERVED.set(kinds)
    }

    /// A table of kinds whose messages are in `schema`.
    #[must_use]
    pub fn new(schema: &'static Schema, mut kinds: Vec<ObjectKind>) -> Self {
        kinds.sort_by_key(|kind| (kind.group, kind.kind));
        Self { schema, kinds }
    }

    /// All kinds, by group and kind.
    pub fn all(&self) -> impl Iterator<Item = &ObjectKind> {
        self.kinds.iter()
    }

    /// The kind of this name.
    #[must_use]
    pub fn find(&self, kind: &str) -> Option<&ObjectKind> {
        self.kinds.iter().find(|known| known.kind == kind)
    }

    /// The kind of this name, or why there is none.
    ///
    /// # Errors
    /// [`Refusal::UnknownKind`].
    pub fn named(&self, kind: &str) -> Result<&ObjectKind, Refusal> {
        self.find(kind).ok_or_else(|| Refusal::UnknownKind {
            api_version: String::new(),
            kind: kind.to_owned(),
        })
    }

    /// The messages of the kinds.
    #[must_use]
    pub const fn schema(&self) -> &'static Schema {
        self.schema
    }

    /// Reads an object that somebody wrote, in the version that is stored. Fields that its kind does not have are
    /// refused.
    ///
    /// # Errors
    /// [`Refusal::UnknownKind`], [`Refusal::Malformed`].
    pub fn read(&self, mut value: Value) -> Result<(&ObjectKind, Object), Refusal> {
        let kind = self.kind_of(&value)?;
        let errors = convert(kind, &mut value);
        if !errors.is_empty() {
            return Err(Refusal::Malformed(errors));
        }
        Ok((kind, self.read_as(kind, value)?))
    }

    /// The kind that a value says it is of.
    pub(super) fn kind_of(&self, value: &Value) -> Result<&ObjectKind, Refusal> {
        let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
        self.served(text("apiVersion"), text("kind"))
    }

    /// The kind of this name, if it is served in a version.
    pub(super) fn served(&self, api_version: &str, name: &str) -> Result<&ObjectKind, Refusal> {
        self.find(name)
            .filter(|kind| kind.is_served_as(api_version))
            .ok_or_else(|| Refusal::UnknownKind {
                api_version: api_version.to_owned(),
                kind: name.to_owned(),
            })
    }

    /// Reads an object of a Kubernetes API, in the version that is stored. The server may be newer: fields that the kind
    /// does not have here are kept as they are, and their paths come with the object.
    ///
    /// This is for stores that are a Kubernetes API, whose objects others write too; a node without a cluster has none.
    /// What callers and files of a node say is for [`Self::read`], and the ledger refuses an object with unknown fields
    /// ([`Self::to_wire`]) rather than lose them.
    ///
    /// # Errors
    /// [`Refusal::UnknownKind`], [`Refusal::Malformed`].
    pub fn read_lenient(
        &self,
        mut value: Value,
    ) -> Result<(&ObjectKind, Object, Vec<String>), Refusal> {
        let kind = self.kind_of(&value)?;
        // A field that is later than its object's version is unknown to that, and kept as such.
        let _later = convert(kind, &mut value);
        let metadata = value.get_mut("metadata").map(Value::take);
        let (mut unknown, mut unknown_metadata) = (Vec::new(), UnknownMetadata::default());
        if let Some(metadata) = metadata {
            let whole = self.schema.canonical_lenient(METADATA, metadata.clone());
            let (whole, paths) = whole.map_err(|errors| Refusal::Malformed(in_metadata(errors)))?;
            let known = from_json_lenient::<ObjectMeta>(metadata);
            let (known, _) = known.map_err(|errors| Refusal::Malformed(in_metadata(errors)))?;
            let known = to_json(&known);
            unknown_metadata = UnknownMetadata::between(&whole, &known);
            unknown.extend(paths.iter().map(|path| format!("metadata.{path}")));
            value["metadata"] = known;
        }
        let value = self.schema.canonical_lenient(kind.message, value);
        let (value, paths) = value.map_err(Refusal::Malformed)?;
        unknown.extend(paths);
        let object = Object {
            unknown_metadata,
            ..object_of(kind, value)?
        };
        Ok((kind, object, unknown))
    }

    /// Reads an object of a known kind.
    ///
    /// # Errors
    /// [`Refusal::Malformed`].
    pub fn read_as(&self, kind: &ObjectKind, value: Value) -> Result<Object, Refusal> {
        let value = self.schema.canonical(kind.message, value);
        let value = value.map_err(Refusal::Malformed)?;
        object_of(kind, value)
    }

    /// The bytes of an object in the store: its message on the wire.
    ///
    /// # Errors
    /// [`Refusal::Malformed`] when the object does not have the form of its kind.
    pub fn to_wire(&self, kind: &ObjectKind, object: &Object) -> Result<Vec<u8>, Refusal> {
        if !object.unknown_metadata.is_empty() {
            return Err(Refusal::Malformed(vec![DecodeError {
                path: String::from("metadata"),
                message: String::from("has fields that this release does not know"),
            }]));
        }
        let head = (object.api_version.as_str(), object.kind.as_str());
        let bytes =
            self.schema
                .object_to_wire(kind.message, head, &object.metadata, &object.content);
        bytes.map_err(Refusal::Malformed)
    }

    /// The object of such bytes.
    ///
    /// # Errors
    /// [`Refusal::Malformed`].
    pub fn from_wire(&self, kind: &ObjectKind, bytes: &[u8]) -> Result<Object, Refusal> {
        let value = self.schema.from_wire(kind.message, bytes);
        let value = value.map_err(|error| Refusal::Malformed(vec![error]))?;
        let mut object = Object::from_json(value).map_err(Refusal::Malformed)?;
        object.api_version = kind.api_version();
        kind.kind.clone_into(&mut object.kind);
        Ok(object)
    }

    /// The JSON text of such bytes: that of [`Self::from_wire`]'s object. Texts that follow each other share `last`.
    ///
    /// # Errors
    /// [`Refusal::Malformed`].
    pub fn text_from_wire(
        &self,
        kind: &ObjectKind,
        bytes: &[u8],
        last: &mut LastText,
    ) -> Result<Vec<u8>, Refusal> {
        // What is kept is as large as its text, whatever the buffer that it was written to.
        let mut buffer = std::mem::take(&mut last.buffer);
        buffer.clear();
        let written = self.append_text(kind, bytes, (last, &mut buffer));
        let text = buffer.as_slice().into();
        last.buffer = buffer;
        written.map(|()| text)
    }

    /// Appends the same text to others. What was appended is of no use after an error.
    ///
    /// # Errors
    /// [`Refusal::Malformed`].
    pub fn append_text(
        &self,
        kind: &ObjectKind,
        bytes: &[u8],
        (last, text): (&mut LastText, &mut Vec<u8>),
    ) -> Result<(), Refusal> {
        let api_version = kind.api_version();
        let head = [("apiVersion", api_version.as_str()), ("kind", kind.kind)];
        let written = self
            .schema
            .write_json(kind.message, &head, bytes, (&mut last.json, text));
        written.map_err(|error| Refusal::Malformed(vec![error]))
    }
}

/// Brings a value into the form of the version that its kind is stored in.
fn convert(kind: &ObjectKind, value: &mut Value) -> Vec<DecodeError> {
    let version = value.get("apiVersion").and_then(Value::as_str);
    let version = version.unwrap_or_default();
    let version = version.rsplit('/').next().unwrap_or_default().to_owned();
    match kind.convert {
        Some(convert) if kind.versions.first() != Some(&version.as_str()) => {
            convert(&version, value)
        }
        _ => Vec::new(),
    }
}

/// The object of a value in the form of its kind, as it is stored.
pub(super) fn object_of(kind: &ObjectKind, value: Value) -> Result<Object, Refusal> {
    let mut object = Object::from_json(value).map_err(Refusal::Malformed)?;
    object.api_version = kind.api_version();
    kind.kind.clone_into(&mut object.kind);
    if let Some(normalize) = kind.normalize {
        normalize(&mut object);
    }
    if !kind.confidential.is_empty() {
        redact(kind.confidential, &mut object.metadata);
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_kind_has_a_message_and_a_name_of_its_own() {
        let kinds = Kinds::this_release();
        let mut names = BTreeSet::new();
        for kind in kinds.all() {
            assert!(kinds.schema().has_message(kind.message), "{}", kind.kind);
            assert!(!kind.versions.is_empty(), "{}", kind.kind);
            let words = [kind.plural, kind.singular].into_iter();
            for word in words.chain(kind.short_names.iter().copied()) {
                assert!(names.insert(word), "{word} stands for two kinds");
            }
        }
    }

    #[test]
    fn paths_of_columns_and_scale_are_fields_of_the_message() {
        let kinds = Kinds::this_release();
        for kind in kinds.all() {
            let scale = kind.scale.iter().flat_map(|scale| {
                [
                    scale.spec_replicas,
                    scale.status_replicas,
                    scale.label_selector,
                ]
            });
            let columns = kind.columns.iter().map(|column| column.json_path);
            for path in columns.chain(scale).filter(|path| !path.contains('[')) {
                let path = path.trim_start_matches('.');
                let is_field = kinds.schema().is_value_path(kind.message, path);
                assert!(is_field, "{}: {path}", kind.kind);
            }
        }
    }

    #[test]
    fn the_text_of_a_row_is_that_of_its_object() {
        let kinds = Kinds::this_release();
        for kind in kinds.all() {
            let mut object = Object {
                api_version: kind.api_version(),
                kind: kind.kind.to_owned(),
                ..Object::default()
            };
            object.metadata.name = String::from("a");
            object.metadata.labels = [("b", "1"), ("a", "\u{1f600}\"")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into();
            object.metadata.generation = 3;
            let bytes = kinds.to_wire(kind, &object).unwrap();
            let mut last = LastText::default();
            let text = kinds.text_from_wire(kind, &bytes, &mut last).unwrap();
            let read = kinds.from_wire(kind, &bytes).unwrap();
            assert_eq!(String::from_utf8(text).unwrap(), read.to_json().to_string());
        }
    }

    #[test]
    fn an_object_is_written_as_its_json_form_is() {
        let kinds = Kinds::this_release();
        let value = serde_json::json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet",
            "metadata": {
                "name": "web", "namespace": "a", "uid": "u", "generation": 2,
                "labels": {"b": "\u{1f600}\"", "a": "1"}, "annotations": {"none": ""},
                "deletionGracePeriodSeconds": 0,
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "v", "controller": false,
                }],
                "finalizers": ["x", "y"],
                "managedFields": [{
                    "manager": "m", "operation": "Update", "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:spec": {"f:replicas": {}}},
                }],
            },
            "spec": {
                "replicas": 0, "paused": false,
                "selector": {"matchLabels": {"a": "1"}},
                "template": {"spec": {"domain": {"devices": {}}}},
            },
            "status": {"replicas": 3},
        });
        let (kind, object) = kinds.read(value).unwrap();
        let value = object.to_json();
        let text = String::from_utf8(object.to_text()).unwrap();
        assert_eq!(text, value.to_string());
        let wire = kinds.to_wire(kind, &object).unwrap();
        assert_eq!(kinds.from_wire(kind, &wire).unwrap(), object);
        let whole = kinds.schema().to_wire(kind.message, value).unwrap();
        // Only what stands for an empty label or annotation may differ.
        assert_eq!(
            kinds.from_wire(kind, &whole).unwrap(),
            kinds.from_wire(kind, &wire).unwrap()
        );
    }

    #[test]
    fn an_object_with_a_field_that_its_kind_has_not_is_not_written() {
        let kinds = Kinds::this_release();
        let kind = kinds.find("ConfigMap").unwrap();
        let mut object = Object::default();
        let content = &mut object.content;
        content.insert(String::from("data"), serde_json::json!({"a": 1}));
        content.insert(String::from("novel"), Value::Null);
        let Err(Refusal::Malformed(errors)) = kinds.to_wire(kind, &object) else {
            panic!("it is refused");
        };
        let paths: Vec<&str> = errors.iter().map(|error| error.path.as_str()).collect();
        assert_eq!(paths, ["data[a]", "novel"]);
    }

    #[test]
    fn objects_of_all_kinds_keep_what_is_unknown_and_the_ledger_takes_none_of_them() {
        let kinds = Kinds::this_release();
        for kind in kinds.all() {
            let mut value = serde_json::json!({
                "apiVersion": kind.api_version(), "kind": kind.kind,
                "metadata": {
                    "name": "a", "labels": {"b": "c"}, "novel": {"f": [1]},
                    "ownerReferences": [
                        {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "v", "novel": 7},
                    ],
                },
                "novel": [{"d": null}, 1.5],
            });
            let mut paths = vec![
                "metadata.novel",
                "metadata.ownerReferences[0].novel",
                "novel",
            ];
            if kind.has_status {
                value["status"] = serde_json::json!({"novel": {"e": ""}});
                paths.push("status.novel");
            }
            let (found, object, unknown) = kinds.read_lenient(value.clone()).unwrap();
            assert_eq!(
                (found.kind, unknown),
                (kind.kind, paths.into_iter().map(str::to_owned).collect())
            );
            assert_eq!(
                object.content.get("novel"),
                value.get("novel"),
                "{}",
                kind.kind
            );
            assert_eq!(
                object.content.get("status"),
                value.get("status"),
                "{}",
                kind.kind
            );
            assert_eq!(object.to_json()["metadata"], value["metadata"]);
            let text: Value = serde_json::from_slice(&object.to_text()).unwrap();
            assert_eq!(text, object.to_json());
            let (_, again, _) = kinds.read_lenient(object.to_json()).unwrap();
            assert_eq!(again, object);
            assert!(kinds.to_wire(kind, &object).is_err(), "{}", kind.kind);
        }
    }

    #[test]
    fn an_object_that_has_nothing_unknown_is_read_alike_in_both_ways() {
        let kinds = Kinds::this_release();
        let value = serde_json::json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "web", "creationTimestamp": null}, "stringData": {"a": "b"},
        });
        let (_, object, unknown) = kinds.read_lenient(value.clone()).unwrap();
        assert!(unknown.is_empty());
        assert_eq!(object, kinds.read(value).unwrap().1);
        let wrong = serde_json::json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": 1, "novel": 2}, "novel": 3,
        });
        let Err(Refusal::Malformed(errors)) = kinds.read_lenient(wrong) else {
            panic!("a name is text");
        };
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert_eq!(errors[0].path, "metadata.name");
    }

    #[test]
    fn an_object_of_a_newer_server_keeps_what_is_unknown_here() {
        let kinds = Kinds::this_release();
        let value = serde_json::json!({
            "apiVersion": "kubevirt.io/v1alpha3", "kind": "VirtualMachineInstance",
            "metadata": {"name": "web", "novel": 1},
            "spec": {"domain": {"devices": {}, "novel": {"a": []}}},
            "status": {"novel": "x"},
        });
        assert!(kinds.read(value.clone()).is_err());
        let (kind, object, unknown) = kinds.read_lenient(value.clone()).unwrap();
        assert_eq!(kind.kind, "VirtualMachineInstance");
        assert_eq!(
            unknown,
            ["metadata.novel", "spec.domain.novel", "status.novel"]
        );
        assert_eq!(object.to_json()["metadata"]["novel"], 1);
        assert_eq!(object.api_version, "kubevirt.io/v1");
        assert_eq!(object.metadata.name, "web");
        assert_eq!(object.content["spec"], value["spec"]);
        assert_eq!(object.content["status"], value["status"]);
    }
}
