//! An object that is stored in one transaction with another.

use agent_objects::{Object, ObjectKind};

use super::inputs::Inputs;

/// An object that is stored with another, unless there is one of its name. It has been admitted.
pub(crate) struct Companion {
    pub(super) kind: &'static ObjectKind,
    pub(super) object: Object,
    /// What else it was judged on.
    pub(crate) inputs: Inputs,
}
