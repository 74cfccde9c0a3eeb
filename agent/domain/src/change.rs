//! Changes of objects.

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// It was changed.
    Modified,
    /// It is gone.
    Deleted,
}
