//! Which objects a caller wants to see, and may.

use agent_objects::{FieldSelector, Kinds, LabelSelector, ObjectKind, Scope, SelectorError};
use proto_node::meta::ObjectMeta;
use serde_json::Value;

use crate::access::Permit;
use crate::error::ApiError;
use crate::objects::ObjectText;

/// An object in the form that a service has of it.
pub(crate) trait Watched: Send + Sync + 'static {
    /// Metadata that selectors are matched against; `None` when it has none.
    fn metadata(&self) -> Option<&ObjectMeta>;

    /// All of it as JSON.
    fn to_json(&self) -> Value;
}

impl Watched for proto_node::node::Object {
    fn metadata(&self) -> Option<&ObjectMeta> {
        Self::metadata(self)
    }

    fn to_json(&self) -> Value {
        Self::to_json(self)
    }
}

impl Watched for ObjectText {
    fn metadata(&self) -> Option<&ObjectMeta> {
        Some(&self.metadata)
    }

    fn to_json(&self) -> Value {
        read_again(self.json.as_deref().unwrap_or_default())
    }
}

/// The text is the agent's own. Of what it could not read again, or did not ask for, no field matches.
fn read_again(json: &[u8]) -> Value {
    serde_json::from_slice(json).unwrap_or_default()
}

/// Which objects somebody wants to see.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    pub(crate) kind: &'static ObjectKind,
    namespace: String,
    labels: LabelSelector,
    fields: FieldSelector,
    /// What the caller may see.
    permit: Permit,
}

impl Filter {
    /// Reads what requests for lists and watches share. A namespace that the caller may not see is refused; without one,
    /// only those are seen that it may. Kinds may ask for a higher role than the method does.
    ///
    /// # Errors
    /// [`ApiError::BadRequest`], [`ApiError::Denied`].
    pub(crate) fn parse(
        (kinds, kind): (&Kinds, &'static ObjectKind),
        mut namespace: String,
        (labels, fields): (&str, &str),
        permit: &Permit,
    ) -> Result<Self, ApiError> {
        let permit = permit.raised(kind.read_role);
        if kind.scope == Scope::Cluster {
            namespace.clear();
            permit.check_all()?;
        } else if !namespace.is_empty() {
            permit.check(&namespace)?;
        } else if permit.covers_none() {
            return Err(permit.denied("in any namespace"));
        }
        let bad = |error: SelectorError| ApiError::BadRequest(error.to_string());
        Ok(Self {
            kind,
            namespace,
            labels: LabelSelector::parse(labels).map_err(bad)?,
            fields: FieldSelector::parse(fields, kinds, kind).map_err(bad)?,
            permit,
        })
    }

    /// Whether it is what was asked for.
    pub(crate) fn matches(&self, object: &impl Watched) -> bool {
        let metadata = object.metadata();
        metadata.is_some_and(|metadata| self.matches_metadata(metadata))
            && (!self.has_fields() || self.fields.matches(&object.to_json()))
    }

    /// Whether an object of this metadata is what was asked for, as far as metadata can say.
    pub(crate) fn matches_metadata(&self, metadata: &ObjectMeta) -> bool {
        self.covers_namespace(&metadata.namespace) && self.labels.matches(&metadata.labels)
    }

    /// Whether the fields of an object's text are what was asked for.
    pub(crate) fn matches_fields(&self, json: &[u8]) -> bool {
        self.fields.matches(&read_again(json))
    }

    /// The one namespace that the caller looks at, unless it is all.
    pub(crate) fn namespace(&self) -> Option<&str> {
        Some(self.namespace.as_str()).filter(|namespace| !namespace.is_empty())
    }

    /// Whether it takes more than metadata to say what matches.
    pub(crate) fn has_fields(&self) -> bool {
        self.fields != FieldSelector::default()
    }

    /// Whether the object may have matched at another time.
    pub(super) fn can_match(&self, object: &impl Watched) -> bool {
        self.covers(object) && (!self.has_fields() || self.fields.can_match(&object.to_json()))
    }

    /// Whether an object where the caller looks may match at one time and not at another.
    pub(super) fn is_selective(&self) -> bool {
        self.labels != LabelSelector::default() || self.has_fields()
    }

    /// Whether it is where the caller looks.
    pub(super) fn covers(&self, object: &impl Watched) -> bool {
        let metadata = object.metadata();
        self.covers_namespace(metadata.map_or("", |metadata| metadata.namespace.as_str()))
    }

    fn covers_namespace(&self, namespace: &str) -> bool {
        let wanted = self.namespace.is_empty() || namespace == self.namespace;
        let is_granted = self.kind.scope == Scope::Cluster || self.permit.covers(namespace);
        wanted && is_granted
    }
}
