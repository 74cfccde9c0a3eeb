//! Objects that have not the form of their kind.

use agent_domain::{FieldError, Rule};
use proto_node::DecodeError;

use crate::kind::Admission;

/// Why an object is refused that has not the form of its kind.
pub(super) fn misformed(errors: Vec<DecodeError>) -> Admission {
    let errors = errors.into_iter();
    let errors = errors.map(|error| FieldError::new(error.path, Rule::Invalid, error.message));
    Admission {
        errors: errors.collect(),
        warnings: Vec::new(),
    }
}
