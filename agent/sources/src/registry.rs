//! What a source needs of VMIs: objects in, objects and changes out.

use std::future::Future;

use agent_domain::{ChangeKind, ObjectSource};
use agent_objects::Propagation;
use proto_node::node::Object;
use proto_node::object::{EVENT_KIND, VMI_KIND};
use proto_node::vmi::VirtualMachineInstance;
use tokio::sync::watch;

use crate::error::ApiError;

/// Kinds of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `VirtualMachineInstance`.
    VirtualMachineInstance,
    /// `Event`.
    Event,
}

impl Kind {
    /// The kind of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            VMI_KIND => Some(Self::VirtualMachineInstance),
            EVENT_KIND => Some(Self::Event),
            _ => None,
        }
    }

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::VirtualMachineInstance => VMI_KIND,
            Self::Event => EVENT_KIND,
        }
    }
}

/// Names one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectRef {
    /// Kind that the API serves.
    pub kind: Kind,
    /// Namespace; empty for kinds that live in none.
    pub namespace: String,
    /// Unique among the kind's objects in the namespace.
    pub name: String,
}

/// A request to apply a VMI.
#[derive(Clone, Debug)]
pub struct Apply {
    /// As its source wants it.
    pub object: VirtualMachineInstance,
    /// A repeated request with the same key does nothing again. Empty: none.
    pub idempotency_key: String,
    /// Admit only.
    pub dry_run: bool,
    /// Refuse when it is there already.
    pub create_only: bool,
    /// Who asks for it, and owns it when it is made.
    pub by: ObjectSource,
    /// Who manages the fields that it changes. Empty: nobody in particular.
    pub manager: String,
    /// The trace that it belongs to.
    pub trace: CallerTrace,
}

/// The trace that a request belongs to, in the words of whoever made it (W3C Trace Context). Nothing of it is checked
/// but its length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallerTrace {
    /// `traceparent`; empty: none.
    pub parent: String,
    /// `tracestate`.
    pub state: String,
}

/// Result of an apply.
#[derive(Clone, Debug)]
pub struct Applied {
    /// As stored.
    pub object: VirtualMachineInstance,
    /// It is new.
    pub created: bool,
    /// It was there and was changed.
    pub configured: bool,
    /// Advice.
    pub warnings: Vec<String>,
}

/// A request to delete an object.
#[derive(Clone, Debug)]
pub struct Delete {
    /// The object to delete.
    pub target: ObjectRef,
    /// Seconds for the guest to shut down; the object's own when absent.
    pub grace_period_seconds: Option<i64>,
    /// Only this uid. Empty: any.
    pub uid: String,
    /// Only this version. Empty: any.
    pub resource_version: String,
    /// Source in whose name the object is deleted.
    pub by: ObjectSource,
    /// What becomes of what it owns; as an earlier request said when absent.
    pub propagation: Option<Propagation>,
    /// Judge only.
    pub dry_run: bool,
}

/// Result of a deletion.
#[derive(Clone, Debug)]
pub struct Deleted {
    /// Marked for deletion, or its last state.
    pub object: Object,
    /// It is gone already.
    pub gone: bool,
}

/// Objects of one kind at one version.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The version of the store that was read.
    pub version: u64,
    /// By namespace and name.
    pub items: Vec<Object>,
}

/// One change.
#[derive(Clone, Debug)]
pub struct Change {
    /// The version that it made.
    pub version: u64,
    /// Whether the object was added, modified or deleted.
    pub change: ChangeKind,
    /// Kind of the object.
    pub kind: Kind,
    /// The object, or its last state.
    pub object: Object,
}

/// VMIs and events of the node.
pub trait GuestRegistry: Clone + Send + Sync + 'static {
    /// Creates or changes a VMI. It is on disk when this returns.
    fn apply(&self, apply: Apply) -> impl Future<Output = Result<Applied, ApiError>> + Send;

    /// Marks an object for deletion.
    fn delete(&self, delete: Delete) -> impl Future<Output = Result<Deleted, ApiError>> + Send;

    /// One object.
    ///
    /// # Errors
    /// [`ApiError::NotFound`], [`ApiError::Internal`].
    fn get(&self, target: &ObjectRef) -> Result<Object, ApiError>;

    /// All objects of a kind.
    ///
    /// # Errors
    /// [`ApiError::Internal`].
    fn list(&self, kind: Kind) -> Result<Listed, ApiError>;

    /// Some objects of a kind, by namespace and name: those after an object, which need not be there any more, or the
    /// first. There are none only at the end.
    ///
    /// # Errors
    /// [`ApiError::Internal`].
    fn list_after(&self, kind: Kind, after: Option<(&str, &str)>) -> Result<Listed, ApiError>;

    /// At most `limit` changes of a kind after a version, the oldest first, and up to which version they reach.
    ///
    /// # Errors
    /// [`ApiError::Expired`], [`ApiError::Internal`].
    fn changes_after(
        &self,
        kind: Kind,
        version: u64,
        limit: usize,
    ) -> Result<(Vec<Change>, u64), ApiError>;

    /// Follows the version of the store.
    fn versions(&self) -> watch::Receiver<u64>;

    /// Records a warning about an object that may not exist.
    fn warn(
        &self,
        target: &ObjectRef,
        reason: &str,
        message: &str,
    ) -> impl Future<Output = ()> + Send;
}
