//! Why a write was refused.

use agent_domain::FieldError;
use proto_node::DecodeError;

/// Why a write was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The object breaks rules.
    #[error("{}", joined(.0))]
    Invalid(Vec<FieldError>),
    /// The value does not have the form of its kind.
    #[error("{}", joined(.0))]
    Malformed(Vec<DecodeError>),
    /// There is no such kind, or not in that version.
    #[error("no matches for kind {kind:?} in version {api_version:?}{}", instead(.kind))]
    UnknownKind {
        /// Group and version.
        api_version: String,
        /// Kind as the request has it.
        kind: String,
    },
    /// A precondition does not hold.
    #[error("{0}")]
    Conflict(String),
    /// Callers cannot write objects of this kind so.
    #[error("{0}")]
    Forbidden(String),
}

/// What to do without a kind that people may count on.
pub const INSTEAD_OF_NETWORK_POLICY: &str = "a node keeps no guests from each other, so it would protect nothing: `ports` of an \
     interface names what is open, pod_network.egress of the agent's configuration what guests may reach";

fn instead(kind: &str) -> String {
    match kind {
        "NetworkPolicy" => format!(": {INSTEAD_OF_NETWORK_POLICY}"),
        _ => String::new(),
    }
}

fn joined<T: ToString>(errors: &[T]) -> String {
    let words: Vec<String> = errors.iter().map(ToString::to_string).collect();
    words.join(", ")
}
