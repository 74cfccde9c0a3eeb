//! Why a request was not carried out, in Kubernetes' kinds.

use agent_domain::{FieldError, Rule};
use agent_objects::Refusal;
use proto_node::{FailureReason, Violation, failure, invalid};
use tonic::Status;

/// Why a request was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The object breaks rules.
    #[error("{kind} {name:?} is invalid: {}", joined(errors))]
    Invalid {
        /// Kind of the object.
        kind: &'static str,
        /// Its name; may be empty.
        name: String,
        /// Every rule that it breaks.
        errors: Vec<FieldError>,
    },
    /// The request makes no sense.
    #[error("{0}")]
    BadRequest(String),
    /// There is no such object.
    #[error("{kind} {name:?} not found{}", place(namespace))]
    NotFound {
        /// Kind in CamelCase.
        kind: &'static str,
        /// Namespace in which there is none; empty for kinds whose objects are in none.
        namespace: String,
        /// Name that the request has.
        name: String,
    },
    /// There is such an object, but not what was asked of it.
    #[error("{0}")]
    Absent(String),
    /// There is such an object, or a console holder, already.
    #[error("{0}")]
    AlreadyExists(String),
    /// A precondition does not hold.
    #[error("{0}")]
    Conflict(String),
    /// The object's state does not allow it.
    #[error("{0}")]
    Forbidden(String),
    /// The caller may not do it.
    #[error("{0}")]
    Denied(String),
    /// The version to watch from is too old.
    #[error("{0}")]
    Expired(String),
    /// Try again later.
    #[error("{0}")]
    Unavailable(String),
    /// The agent failed; the log says more.
    #[error("the agent failed: {0}")]
    Internal(String),
}

impl ApiError {
    /// Why an object of any kind was not written.
    #[must_use]
    pub fn of_refusal(kind: &'static str, name: &str, refusal: Refusal) -> Self {
        let invalid = |errors| Self::Invalid {
            kind,
            name: name.to_owned(),
            errors,
        };
        match refusal {
            Refusal::Invalid(errors) => invalid(errors),
            Refusal::Malformed(errors) => {
                let errors = errors.into_iter();
                let errors = errors.map(|it| FieldError::new(it.path, Rule::Invalid, it.message));
                invalid(errors.collect())
            }
            Refusal::UnknownKind { .. } => Self::BadRequest(refusal.to_string()),
            Refusal::Conflict(text) => Self::Conflict(text),
            Refusal::Forbidden(text) => Self::Forbidden(text),
        }
    }
}

/// Where an object was looked for.
fn place(namespace: &str) -> String {
    match namespace {
        "" => String::new(),
        _ => format!(" in namespace {namespace:?}"),
    }
}

fn joined(errors: &[FieldError]) -> String {
    errors
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

impl From<ApiError> for Status {
    fn from(error: ApiError) -> Self {
        let message = error.to_string();
        match error {
            ApiError::Invalid { kind, name, errors } => {
                let violations: Vec<Violation> = errors
                    .iter()
                    .map(|error| Violation {
                        path: error.path.clone(),
                        message: error.detail(),
                    })
                    .collect();
                invalid(&format!("The {kind} {name:?} is invalid"), &violations)
            }
            ApiError::BadRequest(_) => failure(FailureReason::BadRequest, &message),
            ApiError::NotFound { .. } | ApiError::Absent(_) => {
                failure(FailureReason::NotFound, &message)
            }
            ApiError::AlreadyExists(_) => failure(FailureReason::AlreadyExists, &message),
            ApiError::Conflict(_) => failure(FailureReason::Conflict, &message),
            ApiError::Denied(_) => failure(FailureReason::Denied, &message),
            ApiError::Forbidden(_) => failure(FailureReason::Forbidden, &message),
            ApiError::Expired(_) => failure(FailureReason::Expired, &message),
            ApiError::Unavailable(_) => failure(FailureReason::ServiceUnavailable, &message),
            ApiError::Internal(_) => failure(FailureReason::InternalError, &message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_of_no_namespace_is_missing_in_none() {
        let text = |namespace: &str| {
            let missing = ApiError::NotFound {
                kind: "Namespace",
                namespace: namespace.to_owned(),
                name: String::from("web"),
            };
            missing.to_string()
        };
        assert_eq!(text(""), "Namespace \"web\" not found");
        assert_eq!(
            text("default"),
            "Namespace \"web\" not found in namespace \"default\""
        );
    }
}
