//! Why a guest gave no good answer to a probe or a connection.

/// Why there is no good answer.
#[derive(Debug)]
pub(crate) enum ProbeError {
    /// It is the guest's doing.
    Guest(String),
    /// The node cannot ask.
    Node(String),
}
