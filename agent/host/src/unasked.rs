//! Why a guest gave no good answer to a probe or a connection.

/// Why there is no good answer.
#[derive(Debug)]
pub(crate) enum Unasked {
    /// It is the guest's doing.
    Bad(String),
    /// The node cannot ask.
    Here(String),
}
