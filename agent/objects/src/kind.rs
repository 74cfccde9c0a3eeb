//! One kind: everything that distinguishes it from others.

pub(crate) mod encoding;
pub(crate) mod table;

use std::collections::BTreeMap;

use agent_domain::{FieldError, NodeCaps};
use proto_node::DecodeError;
use proto_node::node::Role;
use serde_json::Value;

use crate::object::{Object, ObjectId};
use crate::refusal::Refusal;

/// Where objects of a kind live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In namespaces.
    Namespaced,
    /// In the node or cluster as a whole.
    Cluster,
}

/// How the value of a column is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// The value as a string.
    Text,
    /// The value as a number.
    Integer,
    /// The values that the path selects, joined by commas.
    List,
    /// The number of values that the path selects.
    Count,
    /// A time, shown as the age.
    Date,
}

/// A column of a table of objects, after their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Heading.
    pub name: &'static str,
    /// Format of the column in tables.
    pub shown: ColumnType,
    /// JSONPath of the value, as Kubernetes writes it: `.spec.replicas`.
    pub json_path: &'static str,
    /// Shown with `-o wide` alone.
    pub wide: bool,
}

/// Where the scale subresource finds its numbers, as dotted paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// The wanted number, such as `.spec.replicas`.
    pub spec_replicas: &'static str,
    /// The present number.
    pub status_replicas: &'static str,
    /// The selector in its string form.
    pub label_selector: &'static str,
}

/// What admission may know beside the object.
#[derive(Clone, Copy)]
pub struct AdmitContext<'a> {
    /// Tells what the node has, which takes a look at files; absent where no node is asked, and one is supposed that has
    /// all that this release can use.
    pub caps: Option<&'a dyn Fn() -> NodeCaps>,
    /// The object as it is stored; absent while it is created.
    pub before: Option<&'a Object>,
    /// Finds other objects that the object names.
    pub find: &'a dyn Fn(&ObjectId) -> Option<Object>,
    /// Whether it finds every object that there is; away from a node there may be others.
    pub finds_all: bool,
}

/// What admission said of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// Every rule that is broken.
    pub errors: Vec<FieldError>,
    /// Advice to whoever writes, one sentence each.
    pub warnings: Vec<String>,
}

/// Fills in what an object does not say. What is malformed it leaves alone, and what has its defaults stays as it is.
pub type FillIn = fn(&mut Object, &AdmitContext<'_>);

/// Judges an object that has its defaults.
pub type Judge = fn(&Object, &AdmitContext<'_>) -> Admission;

/// Brings an object of a version that is not the stored one into the form of that; the answer is what is wrong with it.
pub type Convert = fn(&str, &mut Value) -> Vec<DecodeError>;

/// Reads the data of an object: bytes by key.
pub type ReadData = fn(&Object) -> Result<BTreeMap<String, Vec<u8>>, Refusal>;

/// Makes the objects that are stored with a new one, whose status may name them. It finds others that the new one names.
pub type MakeCompanions = fn(&mut Object, &dyn Fn(&ObjectId) -> Option<Object>) -> Vec<Object>;

/// Who writes objects of a kind into the store.
#[derive(Clone, Copy, Debug)]
pub enum Writer {
    /// This layer, for any caller, once the object is admitted.
    Objects(Judge),
    /// The agent's own path for objects with a guest, which admits them, gives them an actor and ends the guest before
    /// the object goes.
    Guests,
    /// The agent, on its own account. Callers read and delete.
    Agent,
}

/// One kind: everything in which it differs from others.
#[derive(Clone, Copy, Debug)]
pub struct ObjectKind {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Versions under which objects are accepted. They are stored and shown in the first.
    pub versions: &'static [&'static str],
    /// Kind in manifests. No two kinds of the table share it.
    pub kind: &'static str,
    /// Plural in lower case.
    pub plural: &'static str,
    /// Singular in lower case.
    pub singular: &'static str,
    /// Abbreviations on command lines, such as `vmi`.
    pub short_names: &'static [&'static str],
    /// Groups of kinds that it belongs to.
    pub categories: &'static [&'static str],
    /// Where objects live.
    pub scope: Scope,
    /// Full name of its message.
    pub message: &'static str,
    /// Columns after the name.
    pub columns: &'static [Column],
    /// The status is written apart from the rest.
    pub has_status: bool,
    /// The scale subresource, if it has one.
    pub scale: Option<Scale>,
    /// Members that cannot change after creation, such as `spec`.
    pub frozen: &'static [&'static str],
    /// The sentence with which its API refuses a change of these; Kubernetes' own where there is none.
    pub frozen_words: Option<&'static str>,
    /// Fields, beside those of metadata, that an object has unchanged from its making to its end.
    pub lasting: &'static [&'static str],
    /// Who writes objects.
    pub writer: Writer,
    /// Brings objects of the other versions into the form of the first. Without it all versions have one form.
    pub convert: Option<Convert>,
    /// Fills in defaults, of kinds that this layer writes.
    pub defaults: Option<FillIn>,
    /// Brings what a caller wrote into the form that is stored, before it is compared, merged or admitted.
    pub normalize: Option<fn(&mut Object)>,
    /// Members that are encrypted in the ledger, that the annotation of the last apply names without their values, and
    /// of which people are shown sizes.
    pub confidential: &'static [&'static str],
    /// The role that it takes to read objects.
    pub read_role: Role,
    /// Finalizer that every new object is given; a controller takes it away.
    pub finalizer: Option<&'static str>,
    /// Names of objects that cannot be deleted.
    pub undeletable: &'static [&'static str],
    /// Makes what is stored in one transaction with every new object, of kinds that this layer writes.
    pub companions: Option<MakeCompanions>,
    /// Reads the data that a VMI can be given of an object.
    pub data: Option<ReadData>,
}

impl ObjectKind {
    /// A kind of namespaced objects without anything that most kinds do not have, for entries to begin with:
    /// `ObjectKind { kind: "Gadget", ..ObjectKind::PLAIN }`.
    pub const PLAIN: Self = Self {
        group: "",
        versions: &["v1"],
        kind: "",
        plural: "",
        singular: "",
        short_names: &[],
        categories: &[],
        scope: Scope::Namespaced,
        message: "",
        columns: &[],
        has_status: false,
        scale: None,
        frozen: &[],
        frozen_words: None,
        lasting: &[],
        writer: Writer::Agent,
        convert: None,
        defaults: None,
        normalize: None,
        confidential: &[],
        read_role: Role::View,
        finalizer: None,
        undeletable: &[],
        companions: None,
        data: None,
    };

    /// Fills in an object's defaults and judges it; nothing of kinds that this layer does not write.
    pub fn admit(&self, object: &mut Object, context: &AdmitContext<'_>) -> Option<Admission> {
        let Writer::Objects(judge) = self.writer else {
            return None;
        };
        if let Some(fill_in) = self.defaults {
            fill_in(object, context);
        }
        Some(judge(object, context))
    }

    /// Group and version in which objects are stored and shown.
    #[must_use]
    pub fn api_version(&self) -> String {
        let version = self.versions.first().copied().unwrap_or_default();
        if self.group.is_empty() {
            version.to_owned()
        } else {
            format!("{}/{version}", self.group)
        }
    }

    /// Whether objects are accepted under a group and version.
    #[must_use]
    pub fn is_served_as(&self, api_version: &str) -> bool {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        group == self.group && self.versions.contains(&version)
    }
}
